//! Declares every metric once, with its help text; the callers count. Label values come from enums, rule names,
//! upstream names and their addresses only, so clients cannot add series.
//!
//! Series appear when they are first used. At 0 from the start are only those of small closed sets that alerts watch, so
//! that `increase()` sees the first failure.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

mod exemplar;

mod lease;

mod openmetrics;

mod refusal;

mod rule;

mod series;

mod trace;

mod upstream;

pub use exemplar::Exemplar;
use exemplar::Exemplars;
pub use lease::{LeaseMetrics, LeaseResult};
pub(crate) use openmetrics::OPENMETRICS;
pub use refusal::RefusalMetrics;
pub use rule::{MethodLabel, RateMetrics, RuleMetrics};
pub use series::{CounterSeries, GaugeSeries, HistogramSeries};
pub use trace::TraceMetrics;
use upstream::UpstreamMetricFamilies;
pub use upstream::{AddressMetrics, UpstreamMetrics};

/// Buckets from 100 microseconds to five minutes: requests, and what they wait for.
const SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0,
];

/// Buckets from 5 microseconds to half a minute: what the gateway itself adds, and how fast changes take effect.
const SHORT_SECONDS: &[f64] = &[
    0.000005, 0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    1.0, 5.0, 30.0,
];

/// All metrics of this process. Each is an atomic once its labels are resolved.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    exemplars: Arc<Exemplars>,
    authz: IntCounterVec,
    shadow: IntCounterVec,
    rate: IntCounterVec,
    own_rate: OnceLock<RateMetrics>,
    rate_lease: IntCounterVec,
    websockets_open: IntGaugeVec,
    exchanges_open: IntGaugeVec,
    refusals: Arc<RefusalMetrics>,
    pub(crate) overhead_seconds: Histogram,
    pub(crate) requests_in_flight: IntGauge,
    pub(crate) connections_open: IntGauge,
    pub(crate) connections_limit: IntGauge,
    authn: IntCounterVec,
    authn_cached: IntCounter,
    identity_headers_removed: IntCounterVec,
    limit_reached: IntCounterVec,
    connections_refused: IntCounterVec,
    pub(crate) signin: IntCounterVec,
    pub(crate) tickets: IntCounterVec,
    pub(crate) sessions_issued: IntCounterVec,
    pub(crate) sessions_ended: IntCounterVec,
    pub(crate) sessions_live: IntGauge,
    pub(crate) revocation_seconds: Histogram,
    pub(crate) revocation_feed_up: IntGauge,
    pub(crate) feed_lag_seconds: Gauge,
    cache_hit: IntCounter,
    cache_miss: IntCounter,
    pub(crate) websockets_closed: IntCounterVec,
    pub(crate) websocket_close_seconds: Histogram,
    pub(crate) websocket_query_tokens: IntCounter,
    pub(crate) exchanges_cut: IntCounterVec,
    pub(crate) clock_jumps: IntCounterVec,
    pub(crate) store_seconds: HistogramVec,
    pub(crate) store_up: IntGauge,
    pub(crate) directory_up: IntGauge,
    pub(crate) platform_seconds: HistogramVec,
    config_hash: IntGaugeVec,
    pub(crate) platform_errors: IntCounterVec,
    pub(crate) platform_token_age: Gauge,
    pub(crate) platform_circuit_open: IntGauge,
    pub(crate) platform_rechecks: IntCounterVec,
    pub(crate) platform_recheck_overdue: Gauge,
    password_checks: IntGaugeVec,
    pub(crate) password_checks_most: IntGauge,
    upstreams: UpstreamMetricFamilies,
    pub(crate) panics: IntCounter,
    pub(crate) memory_limit: IntGauge,
    log_lines_dropped: IntCounter,
    audit_lines_dropped: IntCounter,
    trace_spans: IntCounterVec,
    pub(crate) rules_loaded: IntGauge,
    pub(crate) config_reload_success: IntGauge,
    pub(crate) config_reload_timestamp: Gauge,
    certificate_expiries: IntGaugeVec,
    pub(crate) tls_reload_success: IntGauge,
    pub(crate) development_mode: IntGauge,
    pub(crate) bind_without_proof: IntGauge,
}

impl Metrics {
    /// Declares all metrics in a registry of their own.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new_custom(Some("deskgate".to_owned()), None)?;
        let counters = |name: &str, help: &str, labels: &[&str]| -> Result<IntCounterVec, prometheus::Error> {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let metric = IntCounter::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let metric = IntGauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let histograms = |name: &str, help: &str, labels: &[&str]| -> Result<HistogramVec, prometheus::Error> {
            let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
            let metric = HistogramVec::new(options, labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let histogram = |name: &str, help: &str| -> Result<Histogram, prometheus::Error> {
            let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(SHORT_SECONDS.to_vec()))?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };

        let websockets_open = IntGaugeVec::new(Opts::new("websockets_open", "Open WebSockets, by rule."), &["rule"])?;
        registry.register(Box::new(websockets_open.clone()))?;
        let exchanges_open = IntGaugeVec::new(
            Opts::new("exchanges_open", "Proxied requests that have run longer than a second, by rule."),
            &["rule"],
        )?;
        registry.register(Box::new(exchanges_open.clone()))?;
        let password_checks = IntGaugeVec::new(
            Opts::new("password_checks", "Agent password hashes running (19 MiB of memory each) or queued."),
            &["state"],
        )?;
        registry.register(Box::new(password_checks.clone()))?;
        let config_hash = IntGaugeVec::new(
            Opts::new("config_hash_info", "Digests of the configuration and the rules in use; always 1."),
            &["config", "rules"],
        )?;
        registry.register(Box::new(config_hash.clone()))?;
        let certificate_expiries = IntGaugeVec::new(
            Opts::new("tls_not_after_seconds", "Unix time at which a certificate in use expires, by its first name."),
            &["certificate"],
        )?;
        registry.register(Box::new(certificate_expiries.clone()))?;
        let seconds = |name: &str, help: &str| -> Result<Gauge, prometheus::Error> {
            let metric = Gauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let build = IntGaugeVec::new(
            Opts::new("build_info", "Version and commit of the running gateway; always 1."),
            &["version", "commit"],
        )?;
        registry.register(Box::new(build.clone()))?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION"), env!("DESKGATE_COMMIT")]).set(1);
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;

        let authn = counters(
            "authn_total",
            "Credential checks, by result, reason and source.",
            &["result", "reason", "source"],
        )?;
        let cache = counters("session_cache_total", "Session cache lookups, by result.", &["result"])?;
        Ok(Self {
            requests: counters(
                "requests_total",
                "Requests answered, by rule, method and status class.",
                &["rule", "method", "code_class"],
            )?,
            request_seconds: histograms(
                "request_seconds",
                "Time from the request head to the end of the response, in seconds.",
                &["rule"],
            )?,
            exemplars: Arc::default(),
            authz: counters("authz_total", "Authorization decisions, by rule and verdict.", &["rule", "verdict"])?,
            shadow: counters(
                "shadow_total",
                "Decisions that rules and rate limits in shadow mode would have made.",
                &["rule", "verdict"],
            )?,
            rate: counters("rate_total", "Rate limit decisions, by rule and verdict.", &["rule", "verdict"])?,
            own_rate: OnceLock::new(),
            rate_lease: counters(
                "rate_lease_total",
                "Questions to the shared store about shared rate limits, by result.",
                &["result"],
            )?,
            refusals: Arc::new(RefusalMetrics::new(counters(
                "refusals_total",
                "Requests that the gateway refused, its own endpoints included, by error code.",
                &["code"],
            )?)),
            overhead_seconds: histogram(
                "overhead_seconds",
                "Time that the gateway adds to requests of rules until the response header, without the upstream's, in \
                 seconds.",
            )?,
            requests_in_flight: gauge("requests_in_flight", "Requests in flight.")?,
            connections_open: gauge("connections_open", "Open client connections, WebSockets included.")?,
            connections_limit: gauge(
                "connections_limit",
                "Most client connections, by limits.connections and the limit on open files; more are not accepted.",
            )?,
            authn_cached: authn.with_label_values(&["ok", "known", "any"]),
            authn,
            identity_headers_removed: counters(
                "identity_headers_removed_total",
                "Spoofed headers removed from requests: identity headers (exact, folded), client addresses, Proxy.",
                &["kind"],
            )?,
            limit_reached: counters(
                "limit_reached_total",
                "How often a limit on connections, requests, bodies, polls or codes was reached, by limit.",
                &["limit"],
            )?,
            connections_refused: counters(
                "connections_refused_total",
                "Connections refused before a request was read, by reason.",
                &["reason"],
            )?,
            signin: counters(
                "signin_total",
                "Sign-in attempts, by method, client and result.",
                &["method", "client", "result"],
            )?,
            tickets: counters("tickets_total", "QR code tickets, by state reached.", &["state"])?,
            sessions_issued: counters("sessions_issued_total", "Sessions issued, by sign-in method.", &["method"])?,
            sessions_ended: counters("sessions_ended_total", "Sessions ended, by cause.", &["cause"])?,
            sessions_live: gauge(
                "sessions_live",
                "Sessions in the store; on Redis those of all gateways, expired ones until they are swept.",
            )?,
            revocation_seconds: histogram(
                "revocation_seconds",
                "Delay from a published session change to its effect on this gateway, in seconds.",
            )?,
            revocation_feed_up: gauge("revocation_feed_up", "1 while the revocation feed is connected and current.")?,
            feed_lag_seconds: seconds(
                "feed_lag_seconds",
                "Time since the change feed of the shared store was last read to its end; 0 with an embedded store.",
            )?,
            cache_hit: cache.with_label_values(&["hit"]),
            cache_miss: cache.with_label_values(&["miss"]),
            websockets_closed: counters("websockets_closed_total", "WebSockets closed, by cause.", &["cause"])?,
            websocket_close_seconds: histogram(
                "websocket_close_seconds",
                "Time from the end of a session to the close frame on its WebSockets, in seconds.",
            )?,
            websocket_query_tokens: counter(
                "websocket_query_tokens_total",
                "WebSocket handshakes with the token in the query string (deprecated).",
            )?,
            exchanges_cut: counters(
                "exchanges_cut_total",
                "Proxied requests cut because their session ended or their rule no longer admits them, by cause.",
                &["cause"],
            )?,
            clock_jumps: counters("clock_jumps_total", "Jumps of the wall clock, by direction.", &["direction"])?,
            store_seconds: histograms(
                "store_seconds",
                "Duration of calls to a shared store, by operation and result, in seconds.",
                &["op", "result"],
            )?,
            config_hash,
            store_up: gauge("store_up", "1 if the store can be read and written, by a check of the last second.")?,
            directory_up: gauge(
                "directory_up",
                "1 if the directory can be read and written, by a check of the last second.",
            )?,
            platform_seconds: histograms(
                "platform_seconds",
                "Duration of messaging platform calls, by call, in seconds.",
                &["call"],
            )?,
            platform_errors: counters(
                "platform_errors_total",
                "Failed messaging platform calls, by call and error class.",
                &["call", "class"],
            )?,
            platform_token_age: seconds(
                "platform_token_age_seconds",
                "Age of the messaging platform access token in seconds; 0 without a token, or if an expired one was not needed.",
            )?,
            platform_circuit_open: gauge(
                "platform_circuit_open",
                "1 while the circuit to the messaging platform is open and sign-ins are refused.",
            )?,
            platform_rechecks: counters(
                "platform_rechecks_total",
                "Employees whose membership was rechecked at the messaging platform, by result.",
                &["result"],
            )?,
            platform_recheck_overdue: seconds(
                "platform_recheck_overdue_seconds",
                "How far the membership recheck is behind platform.recheck, or how long it has had no answer, in seconds.",
            )?,
            password_checks,
            password_checks_most: gauge(
                "password_checks_most",
                "Highest number of concurrent password hashes since the start.",
            )?,
            upstreams: UpstreamMetricFamilies::new(&registry)?,
            panics: counter("panics_total", "Handler panics, each answered with error 1005.")?,
            memory_limit: gauge(
                "memory_limit_bytes",
                "Resident memory beyond which new requests are refused; 0 without a limit.",
            )?,
            log_lines_dropped: counter(
                "log_lines_dropped_total",
                "Log lines dropped because standard error was not read fast enough.",
            )?,
            audit_lines_dropped: counter(
                "audit_lines_dropped_total",
                "Audit lines that a stream of their own did not take; the directory's audit log has them.",
            )?,
            trace_spans: counters(
                "trace_spans_total",
                "Spans of sampled requests, by what became of them.",
                &["result"],
            )?,
            rules_loaded: gauge("rules_loaded", "Rules loaded.")?,
            config_reload_success: gauge("config_reload_success", "1 if the last configuration load succeeded.")?,
            config_reload_timestamp: seconds(
                "config_reload_timestamp_seconds",
                "Unix time of the last successful load of rules, keys and certificates.",
            )?,
            certificate_expiries,
            tls_reload_success: gauge(
                "tls_reload_success",
                "1 if the files of certificates and client authorities were valid when they were last read.",
            )?,
            development_mode: gauge("development_mode", "1 in development mode.")?,
            bind_without_proof: gauge("bind_without_proof", "1 if accounts can be bound without proof of identity.")?,
            websockets_open,
            exchanges_open,
            registry,
        })
    }

    /// The metrics of one rule.
    pub(crate) fn of_rule(&self, rule: &str) -> RuleMetrics {
        RuleMetrics::new(self, rule)
    }

    /// The metrics of refused requests.
    pub(crate) fn refusals(&self) -> &Arc<RefusalMetrics> {
        &self.refusals
    }

    /// Resolves the labels of one upstream.
    pub(crate) fn of_upstream(&self, name: &str) -> UpstreamMetrics {
        self.upstreams.resolve(name)
    }

    /// Resolves the labels of one address of an upstream; `reasons` are those of its failures.
    pub(crate) fn of_address(&self, upstream: &str, address: &str, reasons: &[&'static str]) -> AddressMetrics {
        self.upstreams.resolve_address(upstream, address, reasons)
    }

    /// Removes the counters of an address that its upstream no longer has.
    pub(crate) fn remove_address(&self, upstream: &str, address: &str, reasons: &[&'static str]) {
        self.upstreams.remove_address(upstream, address, reasons);
    }

    /// The gauge of healthy addresses, by upstream and address.
    pub(crate) fn upstream_healthy(&self) -> &IntGaugeVec {
        &self.upstreams.healthy
    }

    /// The rate limit metrics of the gateway's own endpoints.
    pub(crate) fn own_rate(&self) -> &RateMetrics {
        self.own_rate.get_or_init(|| RateMetrics::new(self, "(own endpoint)"))
    }

    /// The metrics of leases of shared rate limits.
    pub(crate) fn leases(&self) -> LeaseMetrics {
        LeaseMetrics::resolve(&self.rate_lease)
    }

    /// Counts a request with a cached token.
    pub(crate) fn count_cached_token(&self) {
        self.authn_cached.inc();
        self.cache_hit.inc();
    }

    /// Counts the verification of a token that was not cached.
    pub(crate) fn count_verified_token(&self, result: &str, reason: &str, source: &str) {
        self.authn.with_label_values(&[result, reason, source]).inc();
        self.cache_miss.inc();
    }

    /// Counts a request without a token where one is required.
    pub(crate) fn count_missing_token(&self, result: &str) {
        self.authn.with_label_values(&[result, "none", "none"]).inc();
    }

    /// Sets the number of running and queued password hashes.
    pub(crate) fn set_password_checks(&self, running: usize, waiting: usize) {
        for (state, count) in [("running", running), ("waiting", waiting)] {
            self.password_checks.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Sets the digests of the configuration and the rules in use.
    pub(crate) fn set_config_hash(&self, config: &str, rules: &str) {
        self.config_hash.reset();
        self.config_hash.with_label_values(&[config, rules]).set(1);
    }

    /// Sets when the certificates in use expire, in seconds since 1970.
    pub(crate) fn set_certificate_expiries(&self, expiries: &BTreeMap<&str, i64>) {
        self.certificate_expiries.reset();
        for (certificate, expiry) in expiries {
            self.certificate_expiries.with_label_values(&[certificate]).set(*expiry);
        }
    }

    /// Sets how many log lines were dropped since the start.
    pub(crate) fn set_log_lines_dropped(&self, total: u64) {
        self.log_lines_dropped.inc_by(total.saturating_sub(self.log_lines_dropped.get()));
    }

    /// The metrics of traces.
    pub(crate) fn traces(&self) -> TraceMetrics {
        TraceMetrics::resolve(&self.trace_spans)
    }

    /// Sets how many audit lines were lost since the start.
    pub(crate) fn set_audit_lines_dropped(&self, total: u64) {
        self.audit_lines_dropped.inc_by(total.saturating_sub(self.audit_lines_dropped.get()));
    }

    /// Counts a removed header that the client must not choose.
    pub(crate) fn count_removed_identity_header(&self, kind: &str) {
        self.identity_headers_removed.with_label_values(&[kind]).inc();
    }

    /// Counts a connection, a poll, a code or a token over a limit.
    pub(crate) fn count_limit_reached(&self, limit: &str) {
        self.limit_counter(limit).inc();
    }

    /// Creates the counters of connections that are closed before a request is read.
    pub(crate) fn create_refused_connections(&self, reasons: &[&str]) {
        for reason in reasons {
            self.connections_refused.with_label_values(&[reason]);
        }
    }

    /// Counts a connection that was closed before a request was read.
    pub(crate) fn count_refused_connection(&self, reason: &str) {
        self.connections_refused.with_label_values(&[reason]).inc();
    }

    /// What [`Self::count_limit_reached`] increments.
    pub(crate) fn limit_counter(&self, limit: &str) -> IntCounter {
        self.limit_reached.with_label_values(&[limit])
    }

    /// Renders all metrics in the OpenMetrics format, with the exemplars of sampled requests.
    pub(crate) fn render_openmetrics(&self) -> Vec<u8> {
        let exemplars = self.exemplars.by_series("deskgate_request_seconds");
        openmetrics::rewrite(&String::from_utf8_lossy(&self.render()), &exemplars).into_bytes()
    }

    /// Renders all metrics in the Prometheus text format.
    pub(crate) fn render(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(16 * 1024);
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics could not be rendered");
        }
        text
    }
}

//! Every metric, declared once with its help text. Labels come from enums, rule names and upstream
//! names only, so their number is fixed when the rules are loaded.

use std::sync::OnceLock;

use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

mod rule;

pub use rule::{MethodLabel, RateMetrics, RuleMetrics};

/// From a hundred microseconds to a minute.
const SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// From ten microseconds to a second, for what the gateway itself adds.
const SHORT_SECONDS: &[f64] =
    &[0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0];

/// All metrics of this process. Each is a plain atomic once its labels are resolved.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    authz: IntCounterVec,
    shadow: IntCounterVec,
    rate: IntCounterVec,
    own_rate: OnceLock<RateMetrics>,
    websockets_open: IntGaugeVec,
    /// Time spent in the gateway, without the upstream.
    pub overhead_seconds: Histogram,
    /// Requests that are being answered now.
    pub requests_in_flight: IntGauge,
    authn: IntCounterVec,
    authn_known: IntCounter,
    identity_headers_removed: IntCounterVec,
    /// Sign-ins by method, client and result.
    pub signin: IntCounterVec,
    /// Tickets by the state that they reached.
    pub tickets: IntCounterVec,
    /// Sessions begun, by method.
    pub sessions_issued: IntCounterVec,
    /// Sessions ended, by cause.
    pub sessions_ended: IntCounterVec,
    /// From the change in the store to its effect here.
    pub revocation_seconds: Histogram,
    /// Whether changes made elsewhere are heard.
    pub revocation_feed_up: IntGauge,
    cache_hit: IntCounter,
    cache_miss: IntCounter,
    /// Sockets closed, by cause.
    pub websockets_closed: IntCounterVec,
    /// From the end of a session to the close frame on its sockets.
    pub websocket_close_seconds: Histogram,
    /// Handshakes that carried their token in the query.
    pub websocket_query_tokens: IntCounter,
    /// Calls to the platform, by call.
    pub platform_seconds: HistogramVec,
    /// Failed calls to the platform, by call and class.
    pub platform_errors: IntCounterVec,
    /// `platform_token_age_seconds`
    pub platform_token_age: Gauge,
    password_checks: IntGaugeVec,
    /// The most passwords that were hashed at once since the start.
    pub password_checks_most: IntGauge,
    /// Time from the request to the first byte of the upstream's answer.
    pub upstream_seconds: HistogramVec,
    /// Panics that became a 1005.
    pub panics: IntCounter,
    /// Rules in force.
    pub rules_loaded: IntGauge,
    /// Whether the last reload went through.
    pub config_reload_success: IntGauge,
    /// When the last good load was.
    pub config_reload_timestamp: Gauge,
    /// Whether development mode is on.
    pub development_mode: IntGauge,
    /// Whether binding asks for no proof.
    pub bind_without_proof: IntGauge,
}

impl Metrics {
    /// Declares them all in a registry of their own.
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

        let websockets_open = IntGaugeVec::new(Opts::new("websockets_open", "WebSockets open now."), &["rule"])?;
        registry.register(Box::new(websockets_open.clone()))?;
        let password_checks = IntGaugeVec::new(
            Opts::new("password_checks", "Passwords of agents being hashed, 19 MiB each, or waiting for their turn."),
            &["state"],
        )?;
        registry.register(Box::new(password_checks.clone()))?;
        let seconds = |name: &str, help: &str| -> Result<Gauge, prometheus::Error> {
            let metric = Gauge::new(name, help)?;
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        };
        let build = IntGaugeVec::new(Opts::new("build_info", "What is running."), &["version", "commit"])?;
        registry.register(Box::new(build.clone()))?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION"), env!("DESKGATE_COMMIT")]).set(1);
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;

        let authn = counters(
            "authn_total",
            "Credentials judged, by result, reason and source.",
            &["result", "reason", "source"],
        )?;
        let cache = counters("session_cache_total", "Lookups of known tokens.", &["result"])?;
        Ok(Self {
            requests: counters("requests_total", "Requests answered.", &["rule", "method", "code_class"])?,
            request_seconds: histograms("request_seconds", "From the head to the end of the answer.", &["rule"])?,
            authz: counters("authz_total", "Decisions of rules.", &["rule", "verdict"])?,
            shadow: counters("shadow_total", "What rules and rates in shadow mode would do.", &["rule", "verdict"])?,
            rate: counters("rate_total", "Requests charged to rates.", &["rule", "verdict"])?,
            own_rate: OnceLock::new(),
            overhead_seconds: histogram("overhead_seconds", "Time spent in the gateway, without the upstream.")?,
            requests_in_flight: gauge("requests_in_flight", "Requests that are being answered now.")?,
            authn_known: authn.with_label_values(&["ok", "known", "any"]),
            authn,
            identity_headers_removed: counters(
                "identity_headers_removed_total",
                "Incoming headers that looked like ours and were removed, by how they were spelled.",
                &["kind"],
            )?,
            signin: counters("signin_total", "Sign-ins.", &["method", "client", "result"])?,
            tickets: counters("tickets_total", "QR-code tickets by the state that they reached.", &["state"])?,
            sessions_issued: counters("sessions_issued_total", "Sessions begun.", &["method"])?,
            sessions_ended: counters("sessions_ended_total", "Sessions ended.", &["cause"])?,
            revocation_seconds: histogram("revocation_seconds", "From a published change to its effect here.")?,
            revocation_feed_up: gauge("revocation_feed_up", "Whether changes made elsewhere are heard.")?,
            cache_hit: cache.with_label_values(&["hit"]),
            cache_miss: cache.with_label_values(&["miss"]),
            websockets_closed: counters("websockets_closed_total", "WebSockets closed.", &["cause"])?,
            websocket_close_seconds: histogram(
                "websocket_close_seconds",
                "From the end of a session to the close frame on its sockets.",
            )?,
            websocket_query_tokens: counter(
                "websocket_query_tokens_total",
                "Handshakes that carried their token in the query, which is to go away.",
            )?,
            platform_seconds: histograms("platform_seconds", "Calls to the messaging platform.", &["call"])?,
            platform_errors: counters("platform_errors_total", "Failed calls to the platform.", &["call", "class"])?,
            platform_token_age: seconds(
                "platform_token_age_seconds",
                "How old the token is with which the platform is asked; 0 when there is none.",
            )?,
            password_checks,
            password_checks_most: gauge(
                "password_checks_most",
                "The most passwords that were hashed at once since the start.",
            )?,
            upstream_seconds: histograms(
                "upstream_seconds",
                "From the choice of the upstream to the first byte of its answer.",
                &["upstream"],
            )?,
            panics: counter("panics_total", "Panics that became a 1005.")?,
            rules_loaded: gauge("rules_loaded", "Rules in force.")?,
            config_reload_success: gauge("config_reload_success", "Whether the last load went through.")?,
            config_reload_timestamp: seconds(
                "config_reload_timestamp_seconds",
                "When rules, keys and certificates were last loaded.",
            )?,
            development_mode: gauge("development_mode", "Whether development mode is on.")?,
            bind_without_proof: gauge("bind_without_proof", "Whether binding asks for no proof.")?,
            websockets_open,
            registry,
        })
    }

    /// Resolves the labels of one rule, so that requests touch atomics only.
    pub fn of_rule(&self, rule: &str) -> RuleMetrics {
        RuleMetrics::resolve(self, rule)
    }

    /// What the rates of our own endpoints said.
    pub fn own_rate(&self) -> &RateMetrics {
        self.own_rate.get_or_init(|| RateMetrics::resolve(self, "(own endpoint)"))
    }

    /// A known token was sent again.
    pub fn token_known(&self) {
        self.authn_known.inc();
        self.cache_hit.inc();
    }

    /// A token that was not known was judged.
    pub fn token_judged(&self, result: &str, reason: &str, source: &str) {
        self.authn.with_label_values(&[result, reason, source]).inc();
        self.cache_miss.inc();
    }

    /// There was no token, or it was not needed.
    pub fn no_token(&self, result: &str) {
        self.authn.with_label_values(&[result, "none", "none"]).inc();
    }

    /// How many passwords are being hashed, and how many wait for it.
    pub fn passwords(&self, running: usize, waiting: usize) {
        for (state, count) in [("running", running), ("waiting", waiting)] {
            self.password_checks.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// A header that looks like ours was removed.
    pub fn identity_header_removed(&self, kind: &str) {
        self.identity_headers_removed.with_label_values(&[kind]).inc();
    }

    /// The Prometheus text.
    pub fn render(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(16 * 1024);
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics cannot be written");
        }
        text
    }
}

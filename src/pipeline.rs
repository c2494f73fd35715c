//! The request lifecycle: [`decide`] runs the phases over a borrowed view of a request's head and either permits
//! or refuses the request. The phases do not depend on Pingora's session types, so that every lane of the gateway
//! and `explain` share them.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::STRICT_TRANSPORT_SECURITY;
use http::{HeaderMap, HeaderValue, Method};

use crate::config::{Development, LimitsConfig, QueryToken};
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::host::AllowedHosts;
use crate::domain::language::Language;
use crate::domain::rate::{Counters, SharedCounters};
use crate::domain::scope::Scope;
use crate::domain::session::Session;
use crate::endpoints::OwnRoute;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::rules::rate::{Rate, UnaskedRates};
use crate::rules::{Rule, RuleSet};
use crate::sessions::{CachedSession, SessionCache};
use crate::token::Tokens;

// What the phases read: the head, its request id, its trace, its subprotocols.
pub mod head;

pub mod request_id;

pub mod trace;

pub mod subprotocol;

// What browsers are told about other origins.
pub mod cors;

// What a decision reports while it is made.
pub mod observe;

// The phases of `decide`, in order. `client_address` is the first step of `arrive`, `upgrade` its last; `redirect` ends requests
// on a listener that only redirects.
pub mod client_address;

mod forwarded;

pub mod arrive;

pub mod redirect;

pub mod upgrade;

pub mod route;

pub mod credentials;

pub mod verify;

pub mod authorize;

pub mod limit;

pub mod assertion;

// Called by `gateway`: before a request is sent upstream, and at its end.
pub mod forward;

pub mod record;

// What operators see of single requests.
pub mod journal;

use arrive::CheckedRequest;
use assertion::Assertion;
use client_address::TrustedProxies;
use cors::{CorsPolicy, CrossOrigin, PreflightAnswer};
use head::{Fields, RequestHead, Transport, UnwantedHeaders};
use journal::RequestJournal;
use observe::DecisionObserver;
use record::Recorder;
use redirect::RedirectTarget;
use request_id::RequestId;
use route::Target;
use trace::TraceParent;
use upgrade::Handshake;

/// Settings and services that decisions need, built once at start.
pub struct Gate {
    /// The wall clock.
    pub clock: Clock,
    /// The proxies in front of the gateway.
    pub proxies: TrustedProxies,
    /// The limits in force; a reload replaces them.
    pub limits: Arc<ArcSwap<LimitsConfig>>,
    /// The rules in force; a reload replaces the whole set.
    pub rules: ArcSwap<RuleSet>,
    /// Verifies tokens and signs assertions.
    pub tokens: Arc<Tokens>,
    /// The session cache.
    pub sessions: Arc<SessionCache>,
    /// The rate of requests with an invalid token.
    pub invalid_tokens: Option<Rate>,
    /// Rate-limit counters.
    pub counters: Arc<dyn Counters>,
    /// Rate-limit counters of all gateways on a shared store.
    pub shared_counters: Option<Arc<dyn SharedCounters>>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Hosts that requests may name.
    pub hosts: AllowedHosts,
    /// Origins whose pages may open WebSockets.
    pub origins: Vec<String>,
    /// Origins whose pages may call the gateway.
    pub cors: CorsPolicy,
    /// Whether WebSocket handshakes may carry `?token=`.
    pub query_token: QueryToken,
    /// Whether the development routes answer.
    pub development: Development,
    /// The language of clients that send no `Accept-Language`.
    pub language: Language,
    /// The value of `X-Forwarded-Proto`.
    pub scheme: HeaderValue,
    /// The value of `Strict-Transport-Security` in responses over TLS.
    pub hsts: Option<HeaderValue>,
    /// Where requests on listeners that redirect to HTTPS are sent.
    pub redirects: RedirectTarget,
    /// The followers of requests and the last refusals.
    pub journal: Arc<RequestJournal>,
}

impl Gate {
    fn policy(&self) -> Policy<'_> {
        Policy {
            limits: &self.limits,
            hosts: &self.hosts,
            origins: &self.origins,
            cors: &self.cors,
            development: self.development,
            counters: &*self.counters,
            shared_counters: self.shared_counters.as_deref(),
            clock: &self.clock,
        }
    }
}

/// What the phases without I/O depend on, besides the rules.
#[derive(Clone, Copy)]
pub(crate) struct Policy<'a> {
    pub limits: &'a ArcSwap<LimitsConfig>,
    pub hosts: &'a AllowedHosts,
    pub origins: &'a [String],
    pub cors: &'a CorsPolicy,
    pub development: Development,
    pub counters: &'a dyn Counters,
    pub shared_counters: Option<&'a dyn SharedCounters>,
    pub clock: &'a Clock,
}

/// What is known of every request, also of one that is refused: its response and its log line need it.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The request id.
    pub request_id: RequestId,
    /// The client's address: the peer's, or the one that a trusted proxy forwarded.
    pub client: IpAddr,
    /// The address of the connection's other end.
    pub peer: IpAddr,
    /// The language of the response.
    pub language: Language,
    /// What the response says about other origins.
    pub cross_origin: CrossOrigin,
    /// The value of `Strict-Transport-Security`, if the response has one.
    pub hsts: Option<HeaderValue>,
}

impl Arrival {
    /// Sets `Strict-Transport-Security`, also in place of an upstream's: the policy is that of the host, which all upstreams share.
    pub(crate) fn write_hsts(&self, headers: &mut HeaderMap) {
        if let Some(hsts) = &self.hsts {
            headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
    }
}

/// Who sends a request, as far as a token proves it.
#[derive(Debug, Clone)]
pub enum Caller {
    /// No valid token, or none that is needed.
    Anonymous,
    /// The token of a live session.
    SignedIn(Arc<CachedSession>),
}

impl Caller {
    /// The session behind the token.
    pub fn session(&self) -> Option<&Session> {
        match self {
            Caller::Anonymous => None,
            Caller::SignedIn(known) => Some(&known.session),
        }
    }
}

/// What answers a request; the label in its log line and metrics.
#[derive(Debug, Clone, Default)]
pub enum Handler {
    /// The upstream of a rule.
    Rule(Arc<Rule>),
    /// One of the gateway's own endpoints.
    Own(&'static OwnRoute),
    /// Nothing: the request was refused before it was routed.
    #[default]
    None,
}

/// Where a request is in its lifecycle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// The connection: no head has been examined.
    #[default]
    Connection,
    /// Phase 1: reads the head.
    Arrive,
    /// Phase 2: finds what answers.
    Route,
    /// Phase 3: finds the token.
    Credentials,
    /// Phase 4: finds the session.
    Verify,
    /// Phase 5: evaluates the rule.
    Authorize,
    /// Phase 6: charges the rates.
    Limit,
    /// One of the gateway's own endpoints answers.
    Endpoint,
    /// The upstream answers.
    Upstream,
}

impl Phase {
    /// The phase by the name of its file, where it has one.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Connection => "connection",
            Phase::Arrive => "arrive",
            Phase::Route => "route",
            Phase::Credentials => "credentials",
            Phase::Verify => "verify",
            Phase::Authorize => "authorize",
            Phase::Limit => "limit",
            Phase::Endpoint => "endpoint",
            Phase::Upstream => "upstream",
        }
    }
}

/// Proof that a request was authorized. Only `authorize` can create one for an endpoint or an upstream, so nothing is forwarded and no
/// endpoint is called without it.
#[derive(Debug)]
pub enum Permit {
    /// One of the gateway's own endpoints answers.
    Own(OwnCall),
    /// An upstream answers. Boxed, because every function that passes a permit on would move it.
    Upstream(Box<UpstreamPermit>),
    /// The gateway answers a preflight, or OPTIONS about the server as a whole; no endpoint is called.
    Preflight(PreflightAnswer),
    /// The gateway redirects to this URL of its own; no endpoint is called.
    Redirect(String),
}

impl Permit {
    /// The rates to charge.
    fn rates(&self) -> &[Rate] {
        match self {
            Permit::Own(call) => &call.rates,
            Permit::Upstream(permit) => &permit.rule.rates,
            Permit::Preflight(_) | Permit::Redirect(_) => &[],
        }
    }

    fn caller(&self) -> &Caller {
        match self {
            Permit::Own(call) => &call.caller,
            Permit::Upstream(permit) => &permit.caller,
            Permit::Preflight(_) | Permit::Redirect(_) => &Caller::Anonymous,
        }
    }
}

/// An authorized call of one of the gateway's own endpoints.
#[derive(Debug)]
pub struct OwnCall {
    /// The endpoint.
    pub route: &'static OwnRoute,
    /// The caller.
    pub caller: Caller,
    rates: Arc<[Rate]>,
    _proof: authorize::Proof,
}

/// An authorized request to an upstream, with everything that forwarding needs.
#[derive(Debug)]
pub struct UpstreamPermit {
    /// The rule that allowed it.
    pub rule: Arc<Rule>,
    /// The caller.
    pub caller: Caller,
    /// The scope that the matrix granted.
    pub scope: Option<Scope>,
    /// The signed identity; present for every signed-in caller.
    pub assertion: Option<Assertion>,
    /// The request target for the upstream, where it differs from the client's.
    pub target: Option<String>,
    /// The kinds of headers to remove before forwarding.
    pub unwanted: UnwantedHeaders,
    /// Whether it is a GET without a body, on HTTP/1.1 also without hop-by-hop headers. Pingora's lane sends its head without a header
    /// map. Most requests are such.
    pub is_bodyless_get: bool,
    /// The trace that the client's `traceparent` continues.
    pub trace: Option<TraceParent>,
    /// The WebSocket handshake, if it is one.
    pub handshake: Option<Handshake>,
    /// The method that a preflight announces, if it is one.
    pub announced_method: Option<Method>,
    _proof: authorize::Proof,
}

/// The result of [`decide`], complete also for refused requests.
pub struct Decision {
    /// What is known of every request.
    pub arrival: Arrival,
    /// What answers the request.
    pub handler: Handler,
    /// The caller; anonymous if the request was refused before its token was verified.
    pub caller: Caller,
    /// The phase that refused the request, or that comes next.
    pub phase: Phase,
    /// The permit, or the refusal.
    pub verdict: Result<Permit, Error>,
}

/// Decides about a request. Requests to the gateway's own endpoints go through the same phases.
pub async fn decide(gate: &Gate, head: &RequestHead<'_>) -> Box<Decision> {
    let fields = Fields::of(head.lines);
    let mut arrival = arrive::describe(&gate.proxies, gate.language, &gate.cors, head, &fields);
    if head.transport == Transport::Tls {
        arrival.hsts.clone_from(&gate.hsts);
    }
    // Denied until every phase has passed. Boxed, because every function that passes a decision on would move it.
    let mut decision = Box::new(Decision {
        arrival,
        handler: Handler::None,
        caller: Caller::Anonymous,
        phase: Phase::Arrive,
        verdict: Err(Error::NotFound),
    });
    decision.verdict = run_phases(gate, head, &fields, &mut decision).await;
    decision
}

/// Runs the phases in order; each takes what the one before proved.
async fn run_phases<'a>(
    gate: &Gate,
    head: &'a RequestHead<'a>,
    fields: &'a Fields<'a>,
    decision: &mut Decision,
) -> Result<Permit, Error> {
    decision.arrival.client = arrive::client(&gate.proxies, &decision.arrival, fields)?;
    let policy = gate.policy();
    if head.transport == Transport::Redirected
        && let Some(location) = redirect::location(&policy, &gate.redirects, head, fields)?
    {
        return Ok(Permit::Redirect(location));
    }
    let (request, target) = locate(&policy, &gate.rules.load(), head, fields, &mut decision.phase)?;
    decision.handler = target.handler();
    decision.phase = Phase::Credentials;
    let credential = credentials::read(gate, &request)?;
    decision.phase = Phase::Verify;
    let now = gate.clock.now();
    decision.caller = match verify::known_caller(gate, &target, &credential, now) {
        Some(caller) => caller,
        // Boxed: few requests read the store, and the future of every request has room for what it awaits.
        None => Box::pin(verify::caller(gate, &target, credential, decision.arrival.client, now)).await?,
    };
    let mut recorder = Recorder::new(&gate.metrics, &decision.arrival);
    let caller = CheckedCaller { caller: decision.caller.clone(), arrival: &decision.arrival, now };
    let (mut permit, unasked) = admit(&policy, target, caller, &request, &mut decision.phase, &mut recorder)?;
    if !unasked.is_empty() {
        // Boxed: few requests wait for the store.
        Box::pin(limit::ask(&policy, &permit, unasked, &decision.arrival, &mut recorder)).await?;
    }
    assertion::sign(gate, &mut permit, &request, now);
    decision.phase = match &permit {
        Permit::Upstream(_) => Phase::Upstream,
        Permit::Own(_) | Permit::Preflight(_) | Permit::Redirect(_) => Phase::Endpoint,
    };
    Ok(permit)
}

/// The phases before the caller is known: validates the head and finds what answers the request.
pub(crate) fn locate<'a>(
    policy: &Policy<'_>,
    rules: &RuleSet,
    head: &'a RequestHead<'a>,
    fields: &'a Fields<'a>,
    phase: &mut Phase,
) -> Result<(CheckedRequest<'a>, Target), Error> {
    let request = arrive::check(&policy.limits.load(), policy.hosts, head, fields)?;
    *phase = Phase::Route;
    let target = route::find(policy, rules, &request)?;
    Ok((request, target))
}

/// Who sends a request that is to be authorized, from where and when.
#[derive(Clone)]
pub(crate) struct CheckedCaller<'a> {
    pub caller: Caller,
    pub arrival: &'a Arrival,
    pub now: Timestamp,
}

/// The phases after the caller is known: authorizes the request and charges its rates. Returns the rates that the store must
/// be asked about before the permit is used; none without shared counters.
pub(crate) fn admit(
    policy: &Policy<'_>,
    target: Target,
    caller: CheckedCaller<'_>,
    request: &CheckedRequest<'_>,
    phase: &mut Phase,
    observer: &mut impl DecisionObserver,
) -> Result<(Permit, UnaskedRates), Error> {
    let CheckedCaller { caller, arrival, now } = caller;
    *phase = Phase::Authorize;
    let permit = authorize::check(policy, target, caller, request, arrival, now, observer)?;
    *phase = Phase::Limit;
    let unasked = limit::charge(policy, &permit, arrival, observer)?;
    Ok((permit, unasked))
}

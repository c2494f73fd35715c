//! The way of a request: one function over a borrowed view of its head, which either refuses or
//! permits. It names no engine: the lane that carries requests now is Pingora's proxy, and another
//! can call the same function without a copy.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;

use crate::config::{Development, LimitsConfig, QueryToken};
use crate::domain::clock::Clock;
use crate::domain::language::Language;
use crate::domain::rate::Counters;
use crate::domain::session::Session;
use crate::endpoints::OwnRoute;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::rules::matrix::Scope;
use crate::rules::{Rule, RuleSet};
use crate::sessions::{CachedSession, SessionCache};
use crate::token::Tokens;

// What is looked at: a borrowed view of the head.
pub mod head;

// The phases, in their order.
pub mod arrive;

pub mod route;

pub mod credentials;

pub mod verify;

pub mod authorize;

pub mod limit;

pub mod assertion;

pub mod forward;

pub mod upgrade;

pub mod record;

use arrive::RequestId;
use assertion::Assertion;
use head::{Fields, RequestHead, Unwanted};
use record::Handler;
use upgrade::Handshake;

/// Everything a decision needs, made once at start.
pub struct Gate {
    /// The time.
    pub clock: Clock,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<ipnet::IpNet>,
    /// How much of a request is read.
    pub limits: LimitsConfig,
    /// The rules in force; a reload swaps them whole.
    pub rules: ArcSwap<RuleSet>,
    /// Reads tokens.
    pub tokens: Arc<Tokens>,
    /// Knows sessions.
    pub live: Arc<SessionCache>,
    /// Counts requests for rates.
    pub counters: Arc<dyn Counters>,
    /// Counts what happens.
    pub metrics: Arc<Metrics>,
    /// Pages from these origins may open sockets.
    pub origins: Vec<String>,
    /// Whether `?token=` is read on handshakes.
    pub query_token: QueryToken,
    /// Whether the development routes answer.
    pub development: Development,
    /// For callers that name no language.
    pub language: Language,
    /// Our own host, for requests that name none.
    pub host: HeaderValue,
    /// The scheme that clients use, for `X-Forwarded-Proto`.
    pub scheme: HeaderValue,
}

/// What is known of a request before anything is decided; kept to the end for its answer and its log line.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its id.
    pub request_id: RequestId,
    /// Who asks: the peer, or what a trusted peer says.
    pub client: IpAddr,
    /// Whom the connection comes from.
    pub peer: IpAddr,
    /// The caller's language.
    pub language: Language,
}

/// Who asks, as far as it has been proved.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Nobody in particular.
    Anonymous,
    /// A live session.
    SignedIn(Arc<CachedSession>),
}

impl Caller {
    /// The session, if there is one.
    pub fn session(&self) -> Option<&Session> {
        match self {
            Caller::Anonymous => None,
            Caller::SignedIn(known) => Some(&known.session),
        }
    }
}

/// A permitted request: nothing is forwarded and no endpoint is called without one, and only
/// `authorize` makes them.
#[derive(Debug)]
pub enum Permit {
    /// One of our own endpoints answers.
    Own(OwnCall),
    /// An upstream answers.
    Upstream(UpstreamPermit),
}

/// A call of one of our own endpoints.
#[derive(Debug)]
pub struct OwnCall {
    /// Which.
    pub route: &'static OwnRoute,
    /// By whom.
    pub caller: Caller,
    _proof: authorize::Proof,
}

/// A request that may go to an upstream, with what it carries there.
#[derive(Debug)]
pub struct UpstreamPermit {
    /// The rule that let it through.
    pub rule: Arc<Rule>,
    /// By whom.
    pub caller: Caller,
    /// What the matrix granted.
    pub scope: Option<Scope>,
    /// The signed form of the identity; there is one when the caller is known.
    pub assertion: Option<Assertion>,
    /// The target to forward, when it is not the one that came.
    pub target: Option<String>,
    /// What must be taken out.
    pub unwanted: Unwanted,
    /// Whether it is a plain question: a GET of HTTP/1.1 without a body and without lines that concern only
    /// the client's connection. Nearly all requests are.
    pub is_bodyless_get: bool,
    /// The incoming trace to go on with.
    pub trace: Option<forward::TraceId>,
    /// The WebSocket handshake, if it is one.
    pub handshake: Option<Handshake>,
    _proof: authorize::Proof,
}

/// What became of a request: told in any case, also of a refused one.
pub struct Decision {
    /// What is known of it.
    pub arrival: Arrival,
    /// Who was in charge, if it came that far.
    pub handler: Handler,
    /// Who asks, if it came that far.
    pub caller: Caller,
    /// Whether it may.
    pub verdict: Result<Permit, Error>,
}

/// Describes a request and decides.
pub async fn judge(gate: &Gate, head: &RequestHead<'_>) -> Decision {
    let fields = Fields::of(head.lines);
    let arrival = arrive::describe(gate, head, &fields);
    let (mut handler, mut caller) = (Handler::Nobody, Caller::Anonymous);
    let verdict = decide(gate, head, &fields, &arrival, &mut handler, &mut caller).await;
    Decision { arrival, handler, caller, verdict }
}

/// The way of every request, top to bottom; our own endpoints take it too. Each phase takes what the
/// one before proved.
async fn decide<'a>(
    gate: &Gate,
    head: &'a RequestHead<'a>,
    fields: &'a Fields<'a>,
    arrival: &Arrival,
    handler: &mut Handler,
    asking: &mut Caller,
) -> Result<Permit, Error> {
    let request = arrive::check(gate, head, fields)?;
    let target = route::find(gate, &request)?;
    *handler = target.handler();
    let credential = credentials::read(gate, &request)?;
    let now = gate.clock.now();
    let caller = verify::caller(gate, &target, credential, now).await?;
    *asking = caller.clone();
    let mut permit = authorize::check(gate, target, caller, &request, arrival, now)?;
    limit::charge(gate, &permit, arrival)?;
    assertion::sign(gate, &mut permit, &request, now);
    Ok(permit)
}

//! The state of one request while Pingora carries it through the callbacks. It decides nothing.

use std::borrow::Borrow;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use prometheus::IntGauge;

use super::connect::UpstreamAttempts;
use super::connection_limits::CountedStream;
use crate::domain::language::Language;
use crate::error::{Code, Error};
use crate::pipeline::cors::CrossOrigin;
use crate::pipeline::request_id::RequestId;
use crate::pipeline::{Arrival, Caller, Handler, Phase, UpstreamPermit};

/// The address of a peer that has none, such as the peer of a Unix socket.
pub(super) const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The state of one request, from its head to its access log entry.
pub(crate) struct RequestContext {
    pub(super) started: Instant,
    pub(super) arrival: Option<Arrival>,
    pub(super) handler: Handler,
    pub(super) caller: Caller,
    /// Where the request is in its lifecycle.
    pub(super) phase: Phase,
    pub(super) permit: Option<Box<UpstreamPermit>>,
    pub(super) error: Option<Error>,
    /// The code of a page or redirect of the gateway that tells a browser about an error.
    pub(super) shown_code: Option<Code>,
    /// Why a response that had begun did not end.
    pub(super) incomplete: Option<Error>,
    pub(super) attempts: UpstreamAttempts,
    /// The time until the upstream's response header that was not spent waiting for the upstream.
    pub(super) overhead: Option<Duration>,
    /// The request in the counts of its client; None on HTTP/1.1.
    pub(super) stream: Option<CountedStream>,
    /// None in the fast lane, which holds the guard itself.
    _in_flight: Option<InFlight>,
}

impl RequestContext {
    /// Of a request that has begun.
    pub(super) fn new(started: Instant, in_flight: Option<InFlight>) -> Self {
        Self {
            started,
            arrival: None,
            handler: Handler::None,
            caller: Caller::Anonymous,
            phase: Phase::default(),
            permit: None,
            error: None,
            shown_code: None,
            incomplete: None,
            attempts: UpstreamAttempts::default(),
            overhead: None,
            stream: None,
            _in_flight: in_flight,
        }
    }
}

/// Counts a request as in flight until it is dropped, also by a panic. The fast lane borrows the gauge, which saves two atomic operations;
/// Pingora's context cannot borrow.
pub(super) struct InFlight<G: Borrow<IntGauge> = IntGauge>(G);

impl<G: Borrow<IntGauge>> InFlight<G> {
    pub(super) fn begin(gauge: G) -> Self {
        gauge.borrow().inc();
        Self(gauge)
    }
}

impl<G: Borrow<IntGauge>> Drop for InFlight<G> {
    fn drop(&mut self) {
        self.0.borrow().dec();
    }
}

/// The arrival of a request that failed before the pipeline described it.
pub(crate) fn unknown_arrival() -> Arrival {
    Arrival {
        request_id: RequestId::fresh(),
        client: NO_ADDRESS,
        peer: NO_ADDRESS,
        language: Language::English,
        cross_origin: CrossOrigin::Off,
        hsts: None,
    }
}

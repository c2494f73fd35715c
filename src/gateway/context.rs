//! The state of one request while a lane carries it. It decides nothing.

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
}

impl RequestContext {
    /// Of a request that has begun.
    pub(super) fn new(started: Instant) -> Self {
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
        }
    }
}

/// Counts a request as in flight until it is dropped, also by a panic.
pub(super) struct InFlight<'a>(&'a IntGauge);

impl<'a> InFlight<'a> {
    pub(super) fn begin(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
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

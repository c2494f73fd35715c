//! Pingora's callbacks: each is a few lines that call one phase. No decision is taken here.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::FutureExt;
use http::HeaderMap;
use pingora_core::connectors::TransportConnector;
use pingora_core::modules::http::HttpModules;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{ErrorSource, ErrorType};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, Session as Exchange};
use prometheus::IntGauge;

use crate::api::{self, Api};
use crate::error::{BadRequest, Error, Part};
use crate::metrics::Metrics;
use crate::pipeline::forward::{self, REQUEST_ID};
use crate::pipeline::head::{HeaderLines, HttpVersion, RequestHead};
use crate::pipeline::record::{self, Happened, InCharge, OwnMetrics};
use crate::pipeline::{self, Arrival, Caller, Gate, Judgement, Pass, Permit};
use crate::reply::Reply;

pub mod chunks;

pub mod connection;

pub mod door;

mod handshake;

mod plain;

pub mod upstreams;

use handshake::Opening;
pub use handshake::SocketSettings;
use upstreams::Upstreams;

/// What Pingora's bare `bool` means in `request_filter`.
const ANSWERED: bool = true;
const GO_ON: bool = false;

/// The lane that carries requests: Pingora's proxy around our pipeline.
pub struct Gateway {
    /// Decides.
    pub gate: Arc<Gate>,
    /// Answers our own endpoints.
    pub api: Api,
    /// Where requests go.
    pub upstreams: Upstreams,
    /// Opens connections there, and keeps those of plain questions for the next.
    pub connector: TransportConnector,
    /// Opens sockets.
    pub sockets: SocketSettings,
    /// Counts requests that no rule was in charge of.
    pub own_metrics: OwnMetrics,
}

/// What is kept about a request while it is carried.
pub struct Passage {
    started: Instant,
    arrival: Option<Arrival>,
    in_charge: InCharge,
    caller: Caller,
    pass: Option<Pass>,
    error: Option<Error>,
    tries: usize,
    sent_upstream: Option<Instant>,
    upstream_took: Option<Duration>,
    _in_flight: InFlight,
}

/// Counts down also when the request's future is dropped or panics.
struct InFlight(IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

struct Lines<'a>(&'a HeaderMap);

impl HeaderLines for Lines<'_> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a [u8])) {
        for (name, value) in self.0 {
            visit(name.as_str(), value.as_bytes());
        }
    }
}

/// A request as the pipeline looks at it.
fn view<'a>(exchange: &'a Exchange, lines: &'a Lines<'a>) -> RequestHead<'a> {
    let header = exchange.req_header();
    let version = match header.version {
        http::Version::HTTP_2 => HttpVersion::Http2,
        http::Version::HTTP_11 => HttpVersion::Http11,
        _ => HttpVersion::Http10,
    };
    let peer = exchange.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
    RequestHead {
        method: header.method.as_str(),
        target: header.raw_path(),
        version,
        lines,
        raw: connection::raw_head(exchange),
        // A connection without an address (a Unix socket) is nobody whom anything could trust.
        peer: peer.unwrap_or(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)),
    }
}

impl Gateway {
    async fn judge(&self, exchange: &Exchange) -> Judgement {
        let lines = Lines(&exchange.req_header().headers);
        pipeline::judge(&self.gate, &view(exchange, &lines)).await
    }

    /// The way of one request up to its answer or its upstream.
    async fn receive(&self, exchange: &mut Exchange, passage: &mut Passage) -> Result<Option<Reply>, Error> {
        let Judgement { arrival, in_charge, caller, verdict } = self.judge(exchange).await;
        passage.arrival = Some(arrival.clone());
        passage.in_charge = in_charge;
        passage.caller = caller;
        if connection::is_body_broken(exchange) {
            return Err(BadRequest::Framing.into());
        }
        match verdict? {
            Permit::Own(call) => {
                // Boxed, as the other less travelled ways are: the future of every request stays small.
                Box::pin(api::answer(&self.api, &call, exchange, &arrival)).await.map(Some)
            }
            Permit::Upstream(pass) => {
                passage.pass = Some(pass);
                Ok(None)
            }
        }
    }

    /// The head of an upstream's answer has come: makes it the client's.
    fn hear(&self, answer: &mut ResponseHeader, passage: &mut Passage) -> pingora_core::Result<()> {
        if answer.status == http::StatusCode::SWITCHING_PROTOCOLS {
            // Handshakes do not come this way: nobody asked for it.
            passage.error = Some(Error::UpstreamFailed(Some("the upstream switched protocols unasked".into())));
            return pingora_core::Error::e_explain(ErrorType::InvalidHTTPHeader, "a 101 that nobody asked for");
        }
        if let (Some(sent), Some(pass)) = (passage.sent_upstream.take(), &passage.pass) {
            let took = sent.elapsed();
            self.upstreams.answered(&pass.rule.upstream, took);
            passage.upstream_took = Some(took);
        }
        undress(answer, passage.arrival.as_ref())
    }

    async fn write(&self, exchange: &mut Exchange, passage: &mut Passage, reply: Reply) -> pingora_core::Result<()> {
        let arrival = passage.arrival.get_or_insert_with(unknown_arrival);
        reply.write(exchange, arrival).await
    }

    async fn refuse(&self, exchange: &mut Exchange, passage: &mut Passage, error: Error) -> pingora_core::Result<()> {
        let arrival = passage.arrival.get_or_insert_with(unknown_arrival);
        let reply = Reply::refusal(arrival, &error);
        let hostile =
            matches!(error, Error::BadRequest(BadRequest::Head | BadRequest::Framing | BadRequest::Repeated(_)));
        passage.error = Some(error);
        if hostile {
            // Where the next request begins on this connection is anybody's guess.
            exchange.set_keepalive(None);
        }
        self.write(exchange, passage, reply).await
    }
}

/// A panic in a handler is that request's 1005 and nobody else's trouble.
async fn guarded<T>(metrics: &Metrics, handler: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    unpanicked(metrics, handler).await.unwrap_or_else(|Panicked| Err(Error::unexpected(Part::Gateway, PANICKED)))
}

const PANICKED: &str = "a handler panicked";

struct Panicked;

async fn unpanicked<T>(metrics: &Metrics, handler: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(handler).catch_unwind().await.map_err(|_| {
        metrics.panics.inc();
        Panicked
    })
}

/// For a request that failed before it could be described.
fn unknown_arrival() -> Arrival {
    let nobody = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    Arrival {
        request_id: pipeline::arrive::RequestId::fresh(),
        client: nobody,
        peer: nobody,
        language: crate::domain::language::Language::English,
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    /// Boxed: the engine moves it from one future into the next.
    type CTX = Box<Passage>;

    fn new_ctx(&self) -> Box<Passage> {
        self.gate.metrics.requests_in_flight.inc();
        Box::new(Passage {
            started: Instant::now(),
            arrival: None,
            in_charge: InCharge::Nobody,
            caller: Caller::Anonymous,
            pass: None,
            error: None,
            tries: 0,
            sent_upstream: None,
            upstream_took: None,
            _in_flight: InFlight(self.gate.metrics.requests_in_flight.clone()),
        })
    }

    /// None: answers are passed on as they are.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(&self, exchange: &mut Exchange, _: &mut Box<Passage>) -> pingora_core::Result<()> {
        connection::begin_exchange(exchange);
        // The engine would wait for ever for a client that does not read.
        exchange.set_write_timeout(Some(self.gate.limits.stalled.get()));
        Ok(())
    }

    async fn request_filter(&self, exchange: &mut Exchange, passage: &mut Box<Passage>) -> pingora_core::Result<bool> {
        let received = guarded(&self.gate.metrics, self.receive(exchange, passage)).await;
        match received {
            Ok(Some(reply)) => self.write(exchange, passage, reply).await?,
            Ok(None) => match &passage.pass {
                Some(Pass { is_plain: true, .. }) => {
                    let asked = unpanicked(&self.gate.metrics, Box::pin(self.ask(exchange, passage))).await;
                    // The failure takes the way of the engine's own: a 1005, or a cut when the answer has begun.
                    asked.map_err(|Panicked| pingora_core::Error::explain(ErrorType::InternalError, PANICKED))??;
                }
                Some(Pass { handshake: Some(_), .. }) => {
                    match guarded(&self.gate.metrics, Box::pin(self.open_socket(exchange, passage))).await {
                        Ok(Opening::Opened | Opening::Declined) => {}
                        Err(error) => self.refuse(exchange, passage, error).await?,
                    }
                }
                _ => {
                    forget_spelling(exchange.req_header_mut());
                    return Ok(GO_ON);
                }
            },
            Err(error) => self.refuse(exchange, passage, error).await?,
        }
        Ok(ANSWERED)
    }

    async fn upstream_peer(&self, _: &mut Exchange, passage: &mut Box<Passage>) -> pingora_core::Result<Box<HttpPeer>> {
        let Some(pass) = &passage.pass else {
            return pingora_core::Error::e_explain(ErrorType::InternalError, "no permit");
        };
        passage.sent_upstream = Some(Instant::now());
        passage.tries += 1;
        Ok(Box::new(self.upstreams.next(&pass.rule.upstream).clone()))
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Exchange,
        request: &mut RequestHeader,
        passage: &mut Box<Passage>,
    ) -> pingora_core::Result<()> {
        let (Some(pass), Some(arrival)) = (&passage.pass, &passage.arrival) else {
            return pingora_core::Error::e_explain(ErrorType::InternalError, "no permit");
        };
        forward::dress(&self.gate, pass, arrival, request).map_err(|error| {
            passage.error = Some(error);
            pingora_core::Error::explain(ErrorType::InternalError, "the head cannot be forwarded")
        })
    }

    async fn response_filter(
        &self,
        _: &mut Exchange,
        response: &mut ResponseHeader,
        passage: &mut Box<Passage>,
    ) -> pingora_core::Result<()> {
        self.hear(response, passage)
    }

    fn fail_to_connect(
        &self,
        _: &mut Exchange,
        _: &HttpPeer,
        passage: &mut Box<Passage>,
        mut error: Box<pingora_core::Error>,
    ) -> Box<pingora_core::Error> {
        let retries = passage.pass.as_ref().map_or(0, |pass| self.upstreams.retries(&pass.rule.upstream));
        error.set_retry(passage.tries <= retries);
        error
    }

    async fn fail_to_proxy(
        &self,
        exchange: &mut Exchange,
        error: &pingora_core::Error,
        passage: &mut Box<Passage>,
    ) -> FailToProxy {
        let broken = connection::is_body_broken(exchange).then(|| BadRequest::Framing.into());
        let told = passage.error.take().or(broken).or_else(|| what_failed(error));
        let code = told.as_ref().map_or(0, |error| error.code().status().as_u16());
        if let Some(told) = told {
            exchange.set_keepalive(None);
            if exchange.response_written().is_some_and(|answer| !answer.status.is_informational()) {
                // The answer has begun: it can only be cut, which the connection's end shows.
                passage.error = Some(told);
            } else if let Err(broken) = self.refuse(exchange, passage, told).await {
                tracing::debug!(error = %broken.etype().as_str(), "the client did not take its refusal");
            }
        }
        FailToProxy { error_code: code, can_reuse_downstream: false }
    }

    async fn logging(&self, exchange: &mut Exchange, _: Option<&pingora_core::Error>, passage: &mut Box<Passage>) {
        let arrival = passage.arrival.get_or_insert_with(unknown_arrival);
        let header = exchange.req_header();
        record::request(
            &self.gate,
            &self.own_metrics,
            &Happened {
                arrival,
                method: header.method.as_str(),
                path: header.uri.path(),
                in_charge: &passage.in_charge,
                caller: &passage.caller,
                status: exchange.response_written().map_or(0, |response| response.status.as_u16()),
                error: passage.error.as_ref(),
                took: passage.started.elapsed(),
                upstream: passage.upstream_took,
            },
        );
        connection::end_exchange(exchange);
    }

    /// Our own line says it, without the query.
    fn suppress_error_log(&self, _: &Exchange, _: &Box<Passage>, _: &pingora_core::Error) -> bool {
        true
    }

    fn request_summary(&self, exchange: &Exchange, _: &Box<Passage>) -> String {
        let header = exchange.req_header();
        format!("{} {}", header.method, record::shown(header.uri.path(), 512))
    }
}

/// Drops the map of header names as they were spelled, which the engine keeps beside the headers, copies with
/// them and searches with every change: names are read in any case.
fn forget_spelling(request: &mut RequestHeader) {
    let empty = RequestHeader::from(http::Request::new(()).into_parts().0);
    let parts = http::request::Parts::from(std::mem::replace(request, empty));
    *request = RequestHeader::from(parts);
}

/// Takes our headers out of an upstream's answer and puts the request's id in.
fn undress(response: &mut ResponseHeader, arrival: Option<&Arrival>) -> pingora_core::Result<()> {
    let usual = response.status.canonical_reason();
    let own_words = response.get_reason_phrase().filter(|words| Some(*words) != usual).map(str::to_owned);
    // The spelling goes here as well.
    let empty = ResponseHeader::from(http::Response::new(()).into_parts().0);
    let mut parts = http::response::Parts::from(std::mem::replace(response, empty));
    for name in forward::clean_answer(&parts.headers) {
        parts.headers.remove(name);
    }
    if let Some(arrival) = arrival {
        parts.headers.insert(REQUEST_ID, arrival.request_id.to_value());
    }
    *response = ResponseHeader::from(parts);
    if own_words.is_some() {
        response.set_reason_phrase(own_words.as_deref())?;
    }
    Ok(())
}

/// What the client is told about a failure of the engine; nothing when the client itself is gone.
fn what_failed(error: &pingora_core::Error) -> Option<Error> {
    let cause = || Some(error.etype().as_str().to_owned().into());
    match (error.esource(), error.etype()) {
        (ErrorSource::Downstream, ErrorType::ReadTimedout) => Some(Error::RequestTimeout),
        (
            ErrorSource::Downstream,
            ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError | ErrorType::WriteTimedout,
        ) => None,
        (ErrorSource::Downstream, ErrorType::InvalidHTTPHeader) => Some(BadRequest::Head.into()),
        (ErrorSource::Downstream, _) => Some(BadRequest::Framing.into()),
        (_, ErrorType::ReadTimedout | ErrorType::WriteTimedout) => Some(Error::UpstreamTimeout),
        (ErrorSource::Internal, _) => Some(Error::unexpected(Part::Gateway, error.etype().as_str().to_owned())),
        _ => Some(Error::UpstreamFailed(cause())),
    }
}

#[cfg(test)]
mod tests;

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
use crate::pipeline::record::{self, AccessLogEntry, OwnMetrics};
use crate::pipeline::request_id::RequestId;
use crate::pipeline::{self, Arrival, Caller, Decision, Gate, Handler, Permit, UpstreamPermit};
use crate::reply::Reply;

pub mod chunks;

pub mod connection;

pub mod accept;

mod handshake;

mod fast_path;

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
pub struct RequestContext {
    started: Instant,
    arrival: Option<Arrival>,
    handler: Handler,
    caller: Caller,
    permit: Option<UpstreamPermit>,
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
    async fn decide(&self, exchange: &Exchange) -> Decision {
        let lines = Lines(&exchange.req_header().headers);
        pipeline::decide(&self.gate, &view(exchange, &lines)).await
    }

    /// The way of one request up to its answer or its upstream.
    async fn receive(&self, exchange: &mut Exchange, context: &mut RequestContext) -> Result<Option<Reply>, Error> {
        let Decision { arrival, handler, caller, verdict } = self.decide(exchange).await;
        context.arrival = Some(arrival.clone());
        context.handler = handler;
        context.caller = caller;
        if connection::is_body_broken(exchange) {
            return Err(BadRequest::Framing.into());
        }
        match verdict? {
            Permit::Own(call) => {
                // Boxed, as the other less travelled ways are: the future of every request stays small.
                Box::pin(api::answer(&self.api, &call, exchange, &arrival)).await.map(Some)
            }
            Permit::Upstream(permit) => {
                context.permit = Some(permit);
                Ok(None)
            }
        }
    }

    /// The head of an upstream's answer has come: makes it the client's.
    fn rewrite_response(&self, answer: &mut ResponseHeader, context: &mut RequestContext) -> pingora_core::Result<()> {
        if answer.status == http::StatusCode::SWITCHING_PROTOCOLS {
            // Handshakes do not come this way: nobody asked for it.
            context.error = Some(Error::UpstreamFailed(Some("the upstream switched protocols unasked".into())));
            return pingora_core::Error::e_explain(ErrorType::InvalidHTTPHeader, "a 101 that nobody asked for");
        }
        if let (Some(sent), Some(permit)) = (context.sent_upstream.take(), &context.permit) {
            let took = sent.elapsed();
            self.upstreams.answered(&permit.rule.upstream, took);
            context.upstream_took = Some(took);
        }
        sanitize_response(answer, context.arrival.as_ref())
    }

    async fn write(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        reply: Reply,
    ) -> pingora_core::Result<()> {
        let arrival = context.arrival.get_or_insert_with(unknown_arrival);
        reply.write(exchange, arrival).await
    }

    async fn refuse(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        error: Error,
    ) -> pingora_core::Result<()> {
        let arrival = context.arrival.get_or_insert_with(unknown_arrival);
        let reply = Reply::refusal(arrival, &error);
        let hostile =
            matches!(error, Error::BadRequest(BadRequest::Head | BadRequest::Framing | BadRequest::Repeated(_)));
        context.error = Some(error);
        if hostile {
            // Where the next request begins on this connection is anybody's guess.
            exchange.set_keepalive(None);
        }
        self.write(exchange, context, reply).await
    }
}

/// A panic in a handler is that request's 1005 and nobody else's trouble.
async fn guarded<T>(metrics: &Metrics, handler: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    catch_panic(metrics, handler).await.unwrap_or_else(|Panicked| Err(Error::unexpected(Part::Gateway, PANICKED)))
}

const PANICKED: &str = "a handler panicked";

struct Panicked;

async fn catch_panic<T>(metrics: &Metrics, handler: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(handler).catch_unwind().await.map_err(|_| {
        metrics.panics.inc();
        Panicked
    })
}

/// For a request that failed before it could be described.
fn unknown_arrival() -> Arrival {
    let nobody = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    Arrival {
        request_id: RequestId::fresh(),
        client: nobody,
        peer: nobody,
        language: crate::domain::language::Language::English,
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    /// Boxed: the engine moves it from one future into the next.
    type CTX = Box<RequestContext>;

    fn new_ctx(&self) -> Box<RequestContext> {
        self.gate.metrics.requests_in_flight.inc();
        Box::new(RequestContext {
            started: Instant::now(),
            arrival: None,
            handler: Handler::None,
            caller: Caller::Anonymous,
            permit: None,
            error: None,
            tries: 0,
            sent_upstream: None,
            upstream_took: None,
            _in_flight: InFlight(self.gate.metrics.requests_in_flight.clone()),
        })
    }

    /// None: answers are passed on as they are.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(
        &self,
        exchange: &mut Exchange,
        _: &mut Box<RequestContext>,
    ) -> pingora_core::Result<()> {
        connection::begin_exchange(exchange);
        // The engine would wait for ever for a client that does not read.
        exchange.set_write_timeout(Some(self.gate.limits.stalled.get()));
        Ok(())
    }

    async fn request_filter(
        &self,
        exchange: &mut Exchange,
        context: &mut Box<RequestContext>,
    ) -> pingora_core::Result<bool> {
        let received = guarded(&self.gate.metrics, self.receive(exchange, context)).await;
        match received {
            Ok(Some(reply)) => self.write(exchange, context, reply).await?,
            Ok(None) => match &context.permit {
                Some(UpstreamPermit { is_bodyless_get: true, .. }) => {
                    let asked =
                        catch_panic(&self.gate.metrics, Box::pin(self.proxy_bodyless_get(exchange, context))).await;
                    // The failure takes the way of the engine's own: a 1005, or a cut when the answer has begun.
                    asked.map_err(|Panicked| pingora_core::Error::explain(ErrorType::InternalError, PANICKED))??;
                }
                Some(UpstreamPermit { handshake: Some(_), .. }) => {
                    match guarded(&self.gate.metrics, Box::pin(self.open_socket(exchange, context))).await {
                        Ok(Opening::Opened | Opening::Declined) => {}
                        Err(error) => self.refuse(exchange, context, error).await?,
                    }
                }
                _ => {
                    forget_spelling(exchange.req_header_mut());
                    return Ok(GO_ON);
                }
            },
            Err(error) => self.refuse(exchange, context, error).await?,
        }
        Ok(ANSWERED)
    }

    async fn upstream_peer(
        &self,
        _: &mut Exchange,
        context: &mut Box<RequestContext>,
    ) -> pingora_core::Result<Box<HttpPeer>> {
        let Some(permit) = &context.permit else {
            return pingora_core::Error::e_explain(ErrorType::InternalError, "no permit");
        };
        context.sent_upstream = Some(Instant::now());
        context.tries += 1;
        Ok(Box::new(self.upstreams.next(&permit.rule.upstream).clone()))
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Exchange,
        request: &mut RequestHeader,
        context: &mut Box<RequestContext>,
    ) -> pingora_core::Result<()> {
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return pingora_core::Error::e_explain(ErrorType::InternalError, "no permit");
        };
        forward::rewrite_request(&self.gate, permit, arrival, request).map_err(|error| {
            context.error = Some(error);
            pingora_core::Error::explain(ErrorType::InternalError, "the head cannot be forwarded")
        })
    }

    async fn response_filter(
        &self,
        _: &mut Exchange,
        response: &mut ResponseHeader,
        context: &mut Box<RequestContext>,
    ) -> pingora_core::Result<()> {
        self.rewrite_response(response, context)
    }

    fn fail_to_connect(
        &self,
        _: &mut Exchange,
        _: &HttpPeer,
        context: &mut Box<RequestContext>,
        mut error: Box<pingora_core::Error>,
    ) -> Box<pingora_core::Error> {
        let retries = context.permit.as_ref().map_or(0, |permit| self.upstreams.retries(&permit.rule.upstream));
        error.set_retry(context.tries <= retries);
        error
    }

    async fn fail_to_proxy(
        &self,
        exchange: &mut Exchange,
        error: &pingora_core::Error,
        context: &mut Box<RequestContext>,
    ) -> FailToProxy {
        let broken = connection::is_body_broken(exchange).then(|| BadRequest::Framing.into());
        let told = context.error.take().or(broken).or_else(|| what_failed(error));
        let code = told.as_ref().map_or(0, |error| error.code().status().as_u16());
        if let Some(told) = told {
            exchange.set_keepalive(None);
            if exchange.response_written().is_some_and(|answer| !answer.status.is_informational()) {
                // The answer has begun: it can only be cut, which the connection's end shows.
                context.error = Some(told);
            } else if let Err(broken) = self.refuse(exchange, context, told).await {
                tracing::debug!(error = %broken.etype().as_str(), "the client did not take its refusal");
            }
        }
        FailToProxy { error_code: code, can_reuse_downstream: false }
    }

    async fn logging(
        &self,
        exchange: &mut Exchange,
        _: Option<&pingora_core::Error>,
        context: &mut Box<RequestContext>,
    ) {
        let arrival = context.arrival.get_or_insert_with(unknown_arrival);
        let header = exchange.req_header();
        record::request(
            &self.gate,
            &self.own_metrics,
            &AccessLogEntry {
                arrival,
                method: header.method.as_str(),
                path: header.uri.path(),
                handler: &context.handler,
                caller: &context.caller,
                status: exchange.response_written().map_or(0, |response| response.status.as_u16()),
                error: context.error.as_ref(),
                took: context.started.elapsed(),
                upstream: context.upstream_took,
            },
        );
        connection::end_exchange(exchange);
    }

    /// Our own line says it, without the query.
    fn suppress_error_log(&self, _: &Exchange, _: &Box<RequestContext>, _: &pingora_core::Error) -> bool {
        true
    }

    fn request_summary(&self, exchange: &Exchange, _: &Box<RequestContext>) -> String {
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
fn sanitize_response(response: &mut ResponseHeader, arrival: Option<&Arrival>) -> pingora_core::Result<()> {
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

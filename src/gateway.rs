//! Carries requests. `accept` takes a connection, `connection` reads the head of a request, and the `fast_lane` answers it; if that does
//! not take it, Pingora's lane does, which is in this file and in `proxy`. Pingora's sessions read the requests of this lane, over HTTP/1 and
//! HTTP/2, and write the responses.
//!
//! What both lanes use: `request_head` (the request as the pipeline and the upstream get it), `connect`, `connector` and `idle_pool` (which
//! address gets the request, over which connection, and whether it gets it again), `response`, `handshake` (WebSockets) and `cut` (the
//! end of the session). Authorizes nothing: `pipeline` does.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use pingora_core::protocols::http::ServerSession as Exchange;
use pingora_core::server::ShutdownWatch;
use pingora_core::{Error as PingoraError, ErrorSource, ErrorType};

use crate::api::{self, Api};
use crate::error::{BadRequest, Error};
use crate::pipeline::record::{self, AccessLogEntry, NoRuleMetrics};
use crate::pipeline::{self, Decision, Gate, Permit, Phase, UpstreamPermit};
use crate::reply::Reply;
use crate::traces::Tracer;
use crate::upstreams::Upstreams;

// Client connections.
pub(crate) mod accept;

pub(crate) mod concurrency;

pub(crate) mod connection;

pub(crate) mod connection_limits;

pub(crate) mod connection_slots;

mod buffer;

mod chunks;

mod deadline;

pub(crate) mod drain_signal;

pub(crate) mod early_refusal;

mod client_connection;

mod linger;

mod plain_stream;

mod receive;

mod proxy_protocol;

// The request as the pipeline and the lanes see it.
mod request_head;

mod context;

mod request_trace;

mod proxy_client;

// The lanes to upstreams.
pub(crate) mod fast_lane;

mod proxy;

pub(crate) mod proxy_app;

mod upstream_session;

mod http1_exchange;

mod http2_exchange;

mod exchange_step;

mod handshake;

// The end of exchanges whose session ends.
mod current_exchange;

pub(crate) mod cut;

// The upstream's side, and failures.
mod connect;

pub(crate) mod connector;

mod idle_pool;

mod response;

mod response_framing;

mod failure;

use connect::{Progress, within_total_timeout};
use connection_limits::CountedStream;
use connector::UpstreamConnector;
use context::InFlight;
pub(crate) use context::{RequestContext, unknown_arrival};
use drain_signal::DrainSignal;
use failure::{PANICKED, Panicked, catch_panic, client_error, internal_error, panic_to_error};
pub(crate) use handshake::SocketSettings;
use handshake::UpgradeResult;
use proxy_client::{ProxyClient, write_reply};
use request_head::{HeaderMapLines, asks_for_socket, host, request_head};

/// Whether the client has got everything that its request asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeEnd {
    /// A complete response.
    Complete,
    /// No response, or only a part of one: the connection or stream must be closed.
    Incomplete,
}

/// The gateway as both lanes run it: the pipeline, the gateway's own endpoints and the upstreams.
pub(crate) struct Gateway {
    pub(crate) gate: Arc<Gate>,
    pub(crate) api: Api,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) connector: UpstreamConnector,
    pub(crate) sockets: SocketSettings,
    pub(crate) drain: Arc<DrainSignal>,
    /// Metrics of requests that no rule matched.
    pub(crate) no_rule_metrics: Arc<NoRuleMetrics>,
    /// None if requests are not traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

/// Watches a permitted exchange until it is complete.
fn begin_watch(exchange: &Exchange, context: &RequestContext) {
    let header = exchange.req_header();
    cut::begin(&header.method, header.raw_path(), host(header), context);
}

/// The verdict about a request. Its body is refused if it is malformed, unless its head is refused.
fn refuse_malformed_body(
    phase: Phase,
    verdict: Result<Permit, Error>,
    malformed: Option<Error>,
) -> Result<Permit, Error> {
    match malformed {
        Some(error) if phase != Phase::Arrive || verdict.is_ok() => Err(error),
        _ => verdict,
    }
}

/// Whether client and gateway may disagree about where this request ends: the connection must not carry another one.
fn is_ambiguous(error: &Error) -> bool {
    matches!(
        error,
        Error::BadRequest(
            BadRequest::Head
                | BadRequest::Framing
                | BadRequest::Repeated(_)
                | BadRequest::Header(_)
                | BadRequest::ForwardedForEntry(_)
                | BadRequest::ForwardedForLength(_)
                | BadRequest::Upgrade
        )
    )
}

impl Gateway {
    /// Decides about a request, unless the fast lane has done so before it left the request to this lane.
    async fn decide(&self, exchange: &Exchange, context: &mut RequestContext) -> Box<Decision> {
        if let Some(earlier) = connection::take_decision(exchange) {
            context.started = earlier.began;
            return earlier.decision;
        }
        let lines = HeaderMapLines(&exchange.req_header().headers);
        pipeline::decide(&self.gate, &request_head(exchange, &lines)).await
    }

    /// Decides about a request and answers it if it is for one of the gateway's own endpoints; otherwise leaves the
    /// permit in the context.
    async fn receive(&self, exchange: &mut Exchange, context: &mut RequestContext) -> Result<Option<Reply>, Error> {
        let Decision { arrival, handler, caller, phase, mut verdict } = *self.decide(exchange, context).await;
        context.arrival = Some(arrival.clone());
        context.handler = handler;
        context.caller = caller;
        context.phase = phase;
        if let Some(tracer) = &self.tracer {
            let lines = HeaderMapLines(&exchange.req_header().headers);
            self.begin_trace(tracer, &request_head(exchange, &lines), context, &arrival, &mut verdict);
        }
        match refuse_malformed_body(phase, verdict, connection::body_error(exchange))? {
            Permit::Own(call) => {
                let mut client = ProxyClient::new(exchange);
                // Boxed, as the other rare lanes are, so that the future of every request stays small.
                let answer = Box::pin(api::answer(&self.api, &call, &mut client, &arrival));
                let answer = match &mut context.attempts.trace {
                    None => answer.await,
                    Some(trace) => Box::pin(trace.watch_calls(answer)).await,
                };
                answer.map(Some).map_err(|error| connection::body_error(exchange).unwrap_or(error))
            }
            Permit::Upstream(permit) => {
                context.stream = self.begin_stream(exchange)?;
                self.begin_attempts(&mut context.attempts, &permit, &arrival, context.started).await?;
                context.permit = Some(permit);
                Ok(None)
            }
            Permit::Preflight(answer) => Ok(Some(Reply::preflight(&answer))),
            Permit::Redirect(location) => Ok(Some(Reply::moved_permanently(&location))),
        }
    }

    fn begin_stream(&self, exchange: &Exchange) -> Result<Option<CountedStream>, Error> {
        connection::begin_stream(exchange).inspect_err(|error| {
            let limit = if matches!(error, Error::Saturated { .. }) { "descriptors" } else { "streams_per_address" };
            self.gate.metrics.count_limit_reached(limit);
        })
    }

    async fn write(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        reply: Reply,
    ) -> pingora_core::Result<()> {
        let arrival = context.arrival.get_or_insert_with(unknown_arrival);
        self.close_if_draining(exchange);
        context.shown_code = reply.error_code();
        write_reply(reply, exchange, arrival).await
    }

    /// Runs a lane until its deadline. After a panic its caller answers 1005, or closes the connection if the response has begun.
    async fn run_lane(
        &self,
        deadline: Option<Instant>,
        lane: impl Future<Output = pingora_core::Result<()>>,
    ) -> pingora_core::Result<()> {
        let lane = within_total_timeout(deadline, lane);
        catch_panic(&self.gate.metrics, lane).await.unwrap_or_else(|Panicked| Err(internal_error(PANICKED)))
    }

    /// Closes an HTTP/1.1 connection after the response that is about to be written, if the gateway drains. HTTP/2
    /// connections are told by Pingora.
    fn close_if_draining(&self, exchange: &mut Exchange) {
        if self.drain.has_begun() {
            exchange.set_keepalive(None);
        }
    }

    async fn refuse(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        error: Error,
    ) -> pingora_core::Result<()> {
        let arrival = context.arrival.get_or_insert_with(unknown_arrival);
        let reply = Reply::refusal(arrival, &error);
        if is_ambiguous(&error) || asks_for_socket(exchange.req_header()) {
            exchange.set_keepalive(None);
        }
        context.error = Some(error);
        self.write(exchange, context, reply).await
    }

    /// Refuses a request whose lane has failed. An HTTP/2 stream is dropped then, which resets it unless it has ended.
    async fn refuse_after_failure(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        error: Error,
    ) -> pingora_core::Result<()> {
        self.refuse(exchange, context, error).await?;
        if exchange.is_http2() && exchange.req_header().method == http::Method::HEAD {
            exchange.write_response_body(Bytes::new(), true).await?;
        }
        Ok(())
    }

    /// Answers a request that Pingora reads.
    pub(crate) async fn serve_session(&self, exchange: &mut Exchange, shutdown: &ShutdownWatch) -> ExchangeEnd {
        match exchange.read_request().await {
            Ok(true) => {}
            Ok(false) => return ExchangeEnd::Incomplete,
            Err(error) => {
                tracing::debug!(error = %error.etype().as_str(), "the request could not be read");
                if error.etype() == &ErrorType::InvalidHTTPHeader {
                    // Fails only if the client has gone.
                    let _ = exchange.respond_error(http::StatusCode::BAD_REQUEST.as_u16()).await;
                }
                exchange.shutdown().await;
                return ExchangeEnd::Incomplete;
            }
        }
        if *shutdown.borrow() {
            exchange.set_keepalive(None);
        }
        let _in_flight = InFlight::begin(&self.gate.metrics.requests_in_flight);
        // Boxed, so that the future that holds it is small: it is moved once.
        let mut context = Box::new(RequestContext::new(Instant::now()));
        self.begin_exchange(exchange);
        let answered = self.answer(exchange, &mut context).await;
        if let Err(error) = &answered {
            Box::pin(self.fail(exchange, error, &mut context)).await;
        }
        self.record(exchange, &mut context);
        if answered.is_err() {
            return ExchangeEnd::Incomplete;
        }
        if context.incomplete.is_none() && exchange.is_http2() && !exchange.is_body_done() {
            Box::pin(linger::end_stream(exchange)).await;
        }
        ExchangeEnd::Complete
    }

    fn begin_exchange(&self, exchange: &mut Exchange) {
        connection::begin_exchange(exchange);
        if connection::wants_close(exchange) {
            exchange.set_keepalive(None);
        }
        // Pingora has no write timeout by default and would wait forever for a client that stops reading.
        exchange.set_write_timeout(Some(self.gate.limits.load().stalled.get()));
    }

    async fn answer(&self, exchange: &mut Exchange, context: &mut RequestContext) -> pingora_core::Result<()> {
        let received = {
            // Pinned here, because each function that gets a future by value moves it.
            let receiving = pin!(self.receive(exchange, context));
            panic_to_error(&self.gate.metrics, receiving).await
        };
        match received {
            Ok(Some(reply)) => self.write(exchange, context, reply).await,
            Ok(None) => match context.permit.as_deref() {
                Some(UpstreamPermit { handshake: Some(_), .. }) => {
                    let opened = {
                        let mut client = ProxyClient::new(exchange);
                        let opening = Box::pin(self.open_socket(&mut client, context));
                        panic_to_error(&self.gate.metrics, opening).await
                    };
                    match opened {
                        Ok(UpgradeResult::Upgraded | UpgradeResult::Declined(_)) => Ok(()),
                        Ok(UpgradeResult::Unsent(_, error)) => Err(error),
                        Err(error) => self.refuse(exchange, context, error).await,
                    }
                }
                _ => {
                    begin_watch(exchange, context);
                    let deadline = context.attempts.deadline();
                    let relayed = pin!(self.proxy(exchange, context));
                    self.run_lane(deadline, relayed).await
                }
            },
            Err(error) => self.refuse(exchange, context, error).await,
        }
    }

    /// Answers a request whose lane has failed, if its response has not begun.
    async fn fail(&self, exchange: &mut Exchange, error: &PingoraError, context: &mut RequestContext) {
        if (error.esource(), error.etype()) == (&ErrorSource::Downstream, &ErrorType::WriteTimedout) {
            self.gate.metrics.count_limit_reached("body_rate");
        }
        context.attempts.fail(&self.upstreams, error, Progress::of(exchange));
        let body_error = || connection::body_error(exchange);
        let Some(refusal) = context.error.take().or_else(body_error).or_else(|| client_error(error)) else { return };
        exchange.set_keepalive(None);
        if exchange.response_written().is_some_and(|response| !response.status.is_informational()) {
            // The response has begun: only closing the connection tells the client that it is incomplete.
            context.incomplete = Some(refusal);
            // Otherwise an HTTP/1 client would get nothing of it, which looks like a connection that was not used.
            if error.esource() != &ErrorSource::Downstream {
                let _ = response::flush(exchange).await;
            }
        } else if let Err(error) = self.refuse_after_failure(exchange, context, refusal).await {
            tracing::debug!(error = %error.etype().as_str(), "the refusal could not be written to the client");
        }
    }

    /// Writes the log line of a request and counts it.
    fn record(&self, exchange: &mut Exchange, context: &mut RequestContext) {
        let status = exchange.response_written().map_or(0, |response| response.status.as_u16());
        let trace_id = request_trace::end_trace(context, status);
        let arrival = context.arrival.get_or_insert_with(unknown_arrival);
        let header = exchange.req_header();
        record::request(
            &self.gate,
            &self.no_rule_metrics,
            &AccessLogEntry {
                arrival,
                method: header.method.as_str(),
                path: header.uri.path().as_bytes(),
                host: &|| host(header),
                handler: &context.handler,
                caller: &context.caller,
                phase: context.phase,
                status,
                trace_id,
                error: context.error.as_ref(),
                shown_code: context.shown_code,
                incomplete: context.incomplete.as_ref(),
                cut: None,
                took: context.started.elapsed(),
                upstream: context.attempts.reached(),
                overhead: context.overhead,
            },
        );
        current_exchange::end();
        connection::end_exchange(exchange);
    }
}

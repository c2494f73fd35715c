//! The fast lane: carries HTTP/1.1 requests in one task, from the client's bytes to the upstream's and back, without a header
//! map. It takes only heads that it fully understands (see `request`). Every other request on the same connection is left to
//! Pingora's lane, with the bytes that were read, and so is one that only that lane can answer.
//!
//! To follow a request: [`Gateway::serve_fast`] parses its head and lets the pipeline decide, `FastExchange::answer` refuses it or
//! sends it on, `relay` carries it to the upstream and its response to the client, and `FastExchange::record` logs and counts it.

use std::pin::{Pin, pin};
use std::time::Instant;

use http::StatusCode;
use pingora_core::{Error as PingoraError, ErrorSource, ErrorType};

use super::client_connection::ClientConnection;
use super::connection::{Connection, EarlierDecision};
use super::context::{InFlight, RequestContext, unknown_arrival};
use super::failure::{client_error, panic_to_error};
use super::idle_pool::PooledConnection;
use super::{Gateway, current_exchange, cut, is_ambiguous, refuse_malformed_body, request_trace};
use crate::config::UpstreamProtocol;
use crate::error::Error;
use crate::pipeline::head::{HttpVersion, RequestHead};
use crate::pipeline::record::{self, AccessLogEntry};
use crate::pipeline::{self, Decision, Permit, UpstreamPermit};
use crate::reply::Reply;

mod client;

mod line_places;

mod parsed;

mod relay;

mod request;

mod response;

mod upload;

use client::LaneClient;
use request::LaneRequest;

/// What follows a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneEnd {
    /// The next request of the connection.
    KeepAlive,
    /// The end of the connection.
    Close,
    /// The end of the connection, without the end of the response.
    Incomplete,
    /// A tunnel, which gets the transport once the connection is dropped.
    Detached,
    /// Pingora's lane: the fast lane has not answered.
    NotTaken,
}

impl Gateway {
    /// Answers a request whose head has been read and which began at `started`, if the fast lane takes it. In memory of its own, so that a
    /// connection that waits for its next request does not hold that of an exchange. It is boxed in this function because where it is
    /// awaited the compiler would build it on the stack first and copy several kilobytes.
    pub(super) fn serve_fast<'a>(
        &'a self,
        connection: &'a mut Connection,
        started: Instant,
    ) -> Pin<Box<impl Future<Output = LaneEnd> + 'a>> {
        Box::pin(self.serve(connection, started))
    }

    async fn serve(&self, connection: &mut Connection, started: Instant) -> LaneEnd {
        let request = match LaneRequest::read(connection.take_head()) {
            Ok(request) => request,
            Err(head) => {
                connection.return_head(head);
                return LaneEnd::NotTaken;
            }
        };
        let _in_flight = InFlight::begin(&self.gate.metrics.requests_in_flight);
        let decision = match self.decide_fast(&request, connection).await {
            Ok(decision) if self.carries(&decision, &request) => decision,
            Ok(decision) => {
                connection.return_head(request.into_bytes());
                connection.leave_decision(EarlierDecision { decision, began: started });
                return LaneEnd::NotTaken;
            }
            Err(error) => refused(error),
        };
        let mut exchange = FastExchange {
            gateway: self,
            client: LaneClient::begin(connection, request.body, &self.gate.limits),
            request: &request,
            context: RequestContext::new(started),
            follows: if request.wants_close { ClientConnection::Close } else { ClientConnection::KeepAlive },
            status: 0,
            body_bytes: 0,
            reusable: None,
        };
        let verdict = exchange.take(decision);
        exchange.run(verdict).await
    }

    /// Decides about a request. A function of its own, so that its future and what follows share their memory.
    async fn decide_fast(&self, request: &LaneRequest, connection: &Connection) -> Result<Box<Decision>, Error> {
        let head = request_head(request, connection);
        // Pinned here, because each function that gets a future by value moves it.
        let deciding = pin!(async { Ok(pipeline::decide(&self.gate, &head).await) });
        panic_to_error(&self.gate.metrics, deciding).await
    }

    /// Whether the fast lane can answer a request that has been decided about.
    fn carries(&self, decision: &Decision, request: &LaneRequest) -> bool {
        match &decision.verdict {
            Ok(Permit::Upstream(permit)) => {
                // A handshake goes to its upstream over HTTP/1.1 in any case.
                let is_http1 = permit.handshake.is_some() || permit.rule.upstream.protocol == UpstreamProtocol::Http1;
                // Both agree for every head that the fast lane reads. If not, Pingora's lane would go by the permit.
                is_http1 && permit.handshake.is_some() == request.is_handshake
            }
            Ok(Permit::Own(_) | Permit::Preflight(_) | Permit::Redirect(_)) | Err(_) => true,
        }
    }
}

/// The decision about a request whose check panicked.
fn refused(error: Error) -> Box<Decision> {
    Box::new(Decision {
        arrival: unknown_arrival(),
        handler: pipeline::Handler::None,
        caller: pipeline::Caller::Anonymous,
        phase: pipeline::Phase::Arrive,
        verdict: Err(error),
    })
}

fn request_head<'a>(request: &'a LaneRequest, connection: &Connection) -> RequestHead<'a> {
    RequestHead {
        method: request.method(),
        target: request.target(),
        version: HttpVersion::Http11,
        authority: None,
        lines: request,
        // The lines were checked when the head was read.
        raw: None,
        stream_goes_on: false,
        peer: connection.peer(),
        transport: connection.transport(),
    }
}

/// A request in the fast lane, and how far its response has come.
struct FastExchange<'a> {
    gateway: &'a Gateway,
    client: LaneClient<'a>,
    request: &'a LaneRequest,
    context: RequestContext,
    /// What the client is told about its connection.
    follows: ClientConnection,
    /// The status of the response that was begun; 0 before.
    status: u16,
    /// The bytes behind the response's head that were sent to the client, with the framing of chunks.
    body_bytes: usize,
    /// The connection to the upstream, once another request can use it.
    reusable: Option<PooledConnection>,
}

impl FastExchange<'_> {
    /// Takes a decision over. Not part of [`FastExchange::run`], whose future would hold the decision twice.
    fn take(&mut self, decision: Box<Decision>) -> Result<Permit, Error> {
        let Decision { arrival, handler, caller, phase, mut verdict } = *decision;
        self.context.handler = handler;
        self.context.caller = caller;
        self.context.phase = phase;
        if let Some(tracer) = &self.gateway.tracer {
            let head = request_head(self.request, self.client.connection);
            self.gateway.begin_trace(tracer, &head, &mut self.context, &arrival, &mut verdict);
        }
        self.context.arrival = Some(arrival);
        refuse_malformed_body(phase, verdict, self.client.body_error())
    }

    async fn run(&mut self, verdict: Result<Permit, Error>) -> LaneEnd {
        let is_written = self.answer(verdict).await.is_ok();
        let now = Instant::now();
        // Only once the client has the response: until then a write may still fail, and the connection is dropped with the exchange.
        if let (Some(connection), Ok(address)) = (self.reusable.take(), self.context.attempts.address()) {
            self.gateway.connector.pool(connection, address, now);
        }
        self.record(now);
        let end = match self.follows {
            _ if !is_written => LaneEnd::Incomplete,
            _ if self.status == StatusCode::SWITCHING_PROTOCOLS.as_u16() => LaneEnd::Detached,
            ClientConnection::KeepAlive => LaneEnd::KeepAlive,
            ClientConnection::Close => LaneEnd::Close,
        };
        self.client.connection.end_exchange(now);
        end
    }

    /// Answers the request. Fails if the connection cannot be used any longer.
    async fn answer(&mut self, verdict: Result<Permit, Error>) -> pingora_core::Result<()> {
        match verdict {
            Ok(Permit::Upstream(permit)) => match self.begin(permit).await {
                Ok(()) if self.request.is_handshake => Box::pin(self.open_socket()).await,
                Ok(()) => self.proxy().await,
                Err(error) => self.refuse(error).await,
            },
            Ok(Permit::Preflight(answer)) => self.write_reply(Reply::preflight(&answer)).await,
            Ok(Permit::Redirect(location)) => self.write_reply(Reply::moved_permanently(&location)).await,
            // Boxed, because few requests need its memory.
            Ok(Permit::Own(call)) => Box::pin(self.answer_own(&call)).await,
            Err(error) => self.refuse(error).await,
        }
    }

    /// Begins the attempts at the upstream, and the watch for the end of the session.
    async fn begin(&mut self, permit: Box<UpstreamPermit>) -> Result<(), Error> {
        let context = &mut self.context;
        let arrival = context.arrival.get_or_insert_with(unknown_arrival);
        self.gateway.begin_attempts(&mut context.attempts, &permit, arrival, context.started).await?;
        context.permit = Some(permit);
        if self.request.is_handshake {
            // The tunnel has a registration of its own.
            return Ok(());
        }
        cut::begin(&self.request.http_method(), self.request.target(), self.request.host(), context);
        Ok(())
    }

    /// Sends the request to its upstream and relays the response.
    async fn proxy(&mut self) -> pingora_core::Result<()> {
        let (gateway, deadline) = (self.gateway, self.context.attempts.deadline());
        // Pinned here: each function that gets a future by value holds it twice.
        let relayed = {
            let relay = pin!(self.relay());
            gateway.run_lane(deadline, relay).await
        };
        match relayed {
            Ok(()) => Ok(()),
            Err(error) => self.fail(error).await,
        }
    }

    /// Answers a request whose exchange with the upstream failed.
    async fn fail(&mut self, error: Box<PingoraError>) -> pingora_core::Result<()> {
        if (error.esource(), error.etype()) == (&ErrorSource::Downstream, &ErrorType::WriteTimedout) {
            // A write that took longer than `stalled` counts like a client below the minimum rate.
            self.gateway.gate.metrics.count_limit_reached("body_rate");
        }
        let progress = self.progress();
        self.context.attempts.fail(&self.gateway.upstreams, &error, progress);
        self.follows = ClientConnection::Close;
        // Asked first: to `client_error`, a body that cannot be read looks like a client that has gone.
        let body_error = || self.client.body_error();
        match self.context.error.take().or_else(body_error).or_else(|| client_error(&error)) {
            None => Err(error),
            Some(refusal) if self.status == 0 => self.refuse(refusal).await,
            Some(refusal) => {
                // The response has begun: only closing the connection tells the client that it is incomplete.
                self.context.incomplete = Some(refusal);
                Err(error)
            }
        }
    }

    async fn refuse(&mut self, error: Error) -> pingora_core::Result<()> {
        if is_ambiguous(&error) || self.request.is_handshake {
            self.follows = ClientConnection::Close;
        }
        let reply = Reply::refusal(self.context.arrival.get_or_insert_with(unknown_arrival), &error);
        self.context.error = Some(error);
        self.write_reply(reply).await
    }

    /// Closes the connection after the response that is about to be written, if the gateway drains.
    fn close_if_draining(&mut self) {
        if self.gateway.drain.has_begun() {
            self.follows = ClientConnection::Close;
        }
    }

    /// Closes the connection after the response that is about to be written, if the body of the request has not been read to its end: the
    /// next request would begin behind it.
    fn close_if_body_unread(&mut self) {
        if !self.client.is_body_read() {
            self.follows = ClientConnection::Close;
        }
    }

    async fn write_reply(&mut self, reply: Reply) -> pingora_core::Result<()> {
        self.close_if_draining();
        self.close_if_body_unread();
        let arrival = self.context.arrival.get_or_insert_with(unknown_arrival);
        self.context.shown_code = reply.error_code();
        let mut out = Vec::with_capacity(1024);
        reply.encode(arrival, &mut out, |out| self.follows.write_lines(Instant::now(), out));
        if self.request.is_head() {
            // The body is what `encode` writes last.
            out.truncate(out.len() - reply.body_length());
        }
        self.status = reply.status().as_u16();
        self.client.write(&out, |_, _| Ok(())).await
    }

    /// Writes the log line of the request, which ended at `now`, and counts it.
    fn record(&mut self, now: Instant) {
        let (request, context) = (self.request, &mut self.context);
        let trace_id = request_trace::end_trace(context, self.status);
        let arrival = context.arrival.get_or_insert_with(unknown_arrival);
        record::request(
            &self.gateway.gate,
            &self.gateway.no_rule_metrics,
            &AccessLogEntry {
                arrival,
                method: request.method(),
                path: request.path(),
                host: &|| request.host(),
                handler: &context.handler,
                caller: &context.caller,
                phase: context.phase,
                status: self.status,
                trace_id,
                error: context.error.as_ref(),
                shown_code: context.shown_code,
                incomplete: context.incomplete.as_ref(),
                cut: None,
                took: now.saturating_duration_since(context.started),
                upstream: context.attempts.reached(),
                overhead: context.overhead,
            },
        );
        current_exchange::end();
    }
}

//! The WebSocket lane: forwards the handshake to the upstream, relays its 101 to the client and starts the tunnel in a
//! task of its own. Relaying frames and closing sockets are left to `sockets`, peers and retries to
//! [`connect`](super::connect).

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SEC_WEBSOCKET_PROTOCOL, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use pingora_core::protocols::http::HttpTask;
use pingora_core::{Error as PingoraError, ErrorType};
use pingora_http::{RequestHeader, ResponseHeader};
use tokio::sync::oneshot;

use super::Gateway;
use super::connect::{Progress, UpstreamAttempts};
use super::connection::DetachedStream;
use super::context::RequestContext;
use super::failure::{client_error, internal_error};
use super::http1_exchange::Http1Exchange;
use super::request_head::remove_hop_by_hop;
use super::response::{has_no_body, remove_connection_headers, sanitize_response};
use crate::api::Downstream;
use crate::config::UpstreamProtocol;
use crate::domain::clock::Timestamp;
use crate::domain::session::{Session, SessionId};
use crate::error::{Error, Part, TokenFault};
use crate::pipeline::upgrade::{Handshake, Negotiated};
use crate::pipeline::{Arrival, UpstreamPermit};
use crate::pipeline::{forward, record};
use crate::rules::{CorsHandling, Mode};
use crate::sockets::Capacity;
use crate::sockets::expiry::Expiry;
use crate::sockets::handle::{OpenKind, Opener};
use crate::sockets::registry::{Registration, Registry};
use crate::sockets::tunnel::{self, ClientEnd, TunnelClose, UpstreamEnd};
use crate::upstreams::ChosenAddress;

/// Longest body of an upstream's response that declines a handshake.
const MAX_DECLINE_BODY: usize = 1024 * 1024;

/// The refusal when an employee has as many sockets open as the rule allows. One may close at any moment, so the wait
/// is short.
const TOO_MANY_SOCKETS: Error = Error::TooManySockets { retry_after: Duration::from_secs(5) };

/// Settings and services of WebSocket handshakes.
pub(crate) struct SocketSettings {
    pub(crate) registry: Arc<Registry>,
    /// Longest wait for the upstream's response to a handshake.
    pub(crate) handshake: Duration,
    /// Longest time for closing a socket in order; then its connections are cut.
    pub(crate) close_grace: Duration,
}

/// What has become of a handshake that the upstream has answered.
#[derive(Debug)]
pub(super) enum UpgradeResult {
    /// A 101: the tunnel runs.
    Upgraded,
    /// Any other response, which has been relayed to the client.
    Declined(StatusCode),
    /// The client has not taken the whole of the response. A part may have been sent, so no other response can follow.
    Unsent(StatusCode, Box<PingoraError>),
}

/// The client of a handshake, in either lane.
#[async_trait]
pub(super) trait HandshakeClient: Downstream {
    /// Writes a 101.
    async fn write_switch(&mut self, response: ResponseHeader) -> pingora_core::Result<()>;

    /// Writes the last response of the connection.
    async fn write_last(&mut self, response: ResponseHeader, body: Bytes) -> pingora_core::Result<()>;

    /// Requests the transport for a tunnel. It arrives when the connection is dropped, after the request has been recorded.
    fn detach(&mut self) -> Option<oneshot::Receiver<DetachedStream>>;
}

impl Gateway {
    /// Opens a permitted socket. The client gets its 101 only after the upstream's 101 and a second check of the
    /// session.
    pub(super) async fn open_socket(
        &self,
        client: &mut dyn HandshakeClient,
        context: &mut RequestContext,
    ) -> Result<UpgradeResult, Error> {
        let RequestContext { permit: Some(permit), arrival: Some(arrival), attempts, .. } = context else {
            return Err(Error::unexpected(Part::Gateway, "no permit"));
        };
        let Some(offer) = &permit.handshake else {
            return Err(Error::unexpected(Part::Gateway, "no handshake"));
        };
        let session = permit.caller.session();
        let session_id = session.map(|session| session.id.clone());
        let opener = Opener {
            kind: OpenKind::WebSocket,
            session: session_id.clone(),
            lifetime: session.map(Session::lifetime),
            employee: session.map(|session| (session.corp_id.clone(), session.employee_id.clone())),
            method: http::Method::GET,
            path: offer.path.as_str().into(),
            address: arrival.client,
        };
        let registration = match self.sockets.registry.register_socket(opener, &permit.rule).await {
            (registration, Capacity::Available) => registration,
            (registration, Capacity::Exhausted) if permit.rule.mode == Mode::Shadow => {
                permit.rule.metrics.shadow_denied.inc();
                record::shadow(arrival, &permit.rule.name, &TOO_MANY_SOCKETS);
                registration
            }
            (_, Capacity::Exhausted) => return Err(TOO_MANY_SOCKETS),
        };
        let request = self.handshake_request(client.head(), permit, offer, arrival)?;
        attempts.use_new_connections();
        let (mut upstream, response) = self.send_handshake(attempts, request).await?;
        if let Some(trace) = &mut attempts.trace {
            trace.note_status(response.status.as_u16());
        }
        if response.status != StatusCode::SWITCHING_PROTOCOLS {
            let status = response.status;
            let reading = read_decline(&mut upstream, response, permit.rule.cors, arrival);
            let reading = tokio::time::timeout(self.sockets.handshake, reading).await;
            let (response, body) = reading.map_err(|_| Error::UpstreamTimeout)??;
            return Ok(match client.write_last(response, body).await {
                Ok(()) => UpgradeResult::Declined(status),
                Err(error) => UpgradeResult::Unsent(status, error),
            });
        }
        let response = switching_protocols(response, offer, permit.rule.cors, arrival)?;
        self.recheck(session_id.as_ref(), &registration).await?;
        let expires_at = session.map(|session| session.expires_at);
        if let Err(error) = client.write_switch(response).await {
            return Ok(UpgradeResult::Unsent(StatusCode::SWITCHING_PROTOCOLS, error));
        }
        let client = client.detach().ok_or_else(|| Error::unexpected(Part::Gateway, "no transport"))?;
        let (stream, read_ahead) = upstream.into_upgraded();
        let upstream = UpstreamEnd { stream, read_ahead };
        self.spawn_tunnel(client, upstream, attempts.take_current(), registration, expires_at, arrival);
        Ok(UpgradeResult::Upgraded)
    }

    /// Authorizes the socket again under the rules in force. A revocation, a lost role or a reload before the
    /// registration did not reach this socket; later ones do.
    async fn recheck(&self, session: Option<&SessionId>, registration: &Registration) -> Result<(), Error> {
        let cached = match session {
            Some(id) => {
                let found = self.gate.sessions.session(id, self.gate.clock.now()).await?;
                Some(found.ok_or(Error::InvalidToken(TokenFault::Revoked))?)
            }
            None => None,
        };
        registration.apply_rules(&self.gate.rules)?;
        registration.handle().check_admitted(cached.as_ref().map(|cached| &cached.session))
    }

    fn handshake_request(
        &self,
        head: &Parts,
        permit: &UpstreamPermit,
        offer: &Handshake,
        arrival: &Arrival,
    ) -> Result<RequestHeader, Error> {
        let mut parts = head.clone();
        remove_hop_by_hop(&mut parts.headers);
        let mut request = RequestHeader::from(parts);
        request.remove_header(&SEC_WEBSOCKET_PROTOCOL);
        forward::rewrite_request(&self.gate, permit, arrival, &mut request)?;
        let invalid = |_| Error::unexpected(Part::Gateway, "the handshake cannot be forwarded");
        request.insert_header(CONNECTION, "Upgrade").map_err(invalid)?;
        request.insert_header(UPGRADE, "websocket").map_err(invalid)?;
        if let Some(protocols) = offer.offered() {
            request.insert_header(SEC_WEBSOCKET_PROTOCOL, protocols).map_err(invalid)?;
        }
        Ok(request)
    }

    /// Sends the handshake to the upstream and reads the header of its response, within the time for handshakes.
    async fn send_handshake(
        &self,
        attempts: &mut UpstreamAttempts,
        request: RequestHeader,
    ) -> Result<(Http1Exchange, ResponseHeader), Error> {
        let exchange = self.exchange_handshake(attempts, request);
        let result = tokio::time::timeout(self.sockets.handshake, exchange).await;
        let result = result.unwrap_or_else(|_| Err(PingoraError::new_up(ErrorType::ReadTimedout)));
        match &result {
            Ok(_) => drop(attempts.succeed(Instant::now())),
            // A failed connect is recorded already.
            Err(error) => attempts.fail(&self.upstreams, error, Progress::default()),
        }
        result.map_err(|error| upstream_failed(&error))
    }

    async fn exchange_handshake(
        &self,
        attempts: &mut UpstreamAttempts,
        mut request: RequestHeader,
    ) -> pingora_core::Result<(Http1Exchange, ResponseHeader)> {
        let connected = self.connect(attempts, UpstreamProtocol::Http1).await?;
        attempts.write_traceparent(&mut request)?;
        let mut upstream = Http1Exchange::without_timeouts(connected.transport.into_connection()?);
        upstream.write_header(&request).await.map_err(PingoraError::into_up)?;
        loop {
            let HttpTask::Header(response, _) = upstream.read_part().await.map_err(PingoraError::into_up)? else {
                return Err(internal_error("a response without a header"));
            };
            if !response.status.is_informational() || response.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok((upstream, *response));
            }
        }
    }

    /// Starts the tunnel; it runs as soon as the lane has released the client's transport.
    fn spawn_tunnel(
        &self,
        client: oneshot::Receiver<DetachedStream>,
        upstream: UpstreamEnd,
        address: Option<ChosenAddress>,
        registration: Registration,
        expires_at: Option<Timestamp>,
        arrival: &Arrival,
    ) {
        let (metrics, grace) = (self.gate.metrics.clone(), self.sockets.close_grace);
        let (request_id, clock) = (arrival.request_id, self.gate.clock.clone());
        let expiry = expires_at.map(|end| Expiry::at(end, clock));
        tokio::spawn(async move {
            let Ok(DetachedStream { stream, slot, read_ahead }) = client.await else { return };
            let client = ClientEnd { stream, read_ahead: read_ahead.into() };
            let rule = registration.handle().rule();
            let (rule, upstream_name) = (rule.name.clone(), rule.upstream.name.clone());
            let opened = Instant::now();
            let record = move |close: TunnelClose| {
                let reached = address.as_ref().map(|chosen| chosen.address().clone());
                drop((slot, address));
                tracing::info!(
                    target: "deskgate::socket",
                    { request.id = request_id.as_str(), rule.name = &*rule, upstream.name = &*upstream_name,
                      upstream.address = reached.as_ref().map(|address| address.name()), cause = close.end.as_str(),
                      closed_by = close.closed_by(), close.code = close.code, duration_ms = opened.elapsed().as_secs_f64() * 1000.0 },
                    "socket closed{}", closing_words(close)
                );
            };
            // In a task of its own, so that an open socket does not hold what only its beginning needs.
            tokio::spawn(tunnel::run(client, upstream, registration, expiry, grace, metrics, record));
        });
    }
}

/// Who closed a socket, and with which code.
fn closing_words(close: TunnelClose) -> String {
    match (close.closed_by(), close.code) {
        (Some(by), Some(code)) => format!(" by the {by} with {code}"),
        (Some(by), None) => format!(" by the {by} without a close frame"),
        (None, _) => ": a connection broke".to_owned(),
    }
}

fn upstream_failed(error: &PingoraError) -> Error {
    client_error(error).unwrap_or_else(|| Error::UpstreamFailed(Some(error.etype().as_str().to_owned().into())))
}

/// The client's 101: the upstream's, with a subprotocol that the client accepts.
fn switching_protocols(
    mut response: ResponseHeader,
    offer: &Handshake,
    cors: CorsHandling,
    arrival: &Arrival,
) -> Result<ResponseHeader, Error> {
    let not_offered = || Error::UpstreamFailed(Some("the upstream chose a subprotocol that was not offered".into()));
    let invalid = |_| Error::unexpected(Part::Gateway, "the 101 cannot be forwarded");
    let chosen = response.headers.get(SEC_WEBSOCKET_PROTOCOL).map(|value| value.to_str().map_err(|_| not_offered()));
    let chosen = chosen.transpose()?.map(str::to_owned);
    match offer.negotiate(chosen.as_deref()) {
        Negotiated::Protocol(protocol) => response.insert_header(SEC_WEBSOCKET_PROTOCOL, protocol).map_err(invalid)?,
        Negotiated::None => {
            response.remove_header(&SEC_WEBSOCKET_PROTOCOL);
        }
        Negotiated::NotOffered => return Err(not_offered()),
    }
    // A 101 has no body (RFC 9110, section 15.2).
    response.remove_header(&CONTENT_LENGTH);
    response.remove_header(&TRANSFER_ENCODING);
    sanitize_response(&mut response, cors, arrival).map_err(invalid)?;
    Ok(response)
}

/// Reads the rest of a response other than 101. Returns what the client gets as the last response of its connection: it may already be
/// sending frames.
async fn read_decline(
    upstream: &mut Http1Exchange,
    mut response: ResponseHeader,
    cors: CorsHandling,
    arrival: &Arrival,
) -> Result<(ResponseHeader, Bytes), Error> {
    let mut body = Vec::new();
    while let HttpTask::Body(bytes, _) = upstream.read_part().await.map_err(|error| upstream_failed(&error))? {
        let bytes = bytes.unwrap_or_default();
        if body.len() + bytes.len() > MAX_DECLINE_BODY {
            return Err(Error::UpstreamFailed(Some("the upstream's response to the handshake is too large".into())));
        }
        body.extend_from_slice(&bytes);
    }
    let invalid = |_| Error::unexpected(Part::Gateway, "the response to the handshake cannot be forwarded");
    remove_connection_headers(&mut response);
    // Both lanes write their own.
    response.remove_header(&DATE);
    sanitize_response(&mut response, cors, arrival).map_err(invalid)?;
    if !has_no_body(response.status) {
        response.insert_header(CONTENT_LENGTH, body.len()).map_err(invalid)?;
    }
    Ok((response, body.into()))
}

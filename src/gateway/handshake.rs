//! Opens a socket: the upstream's side with the engine's connectors, its 101 to the client, then the
//! tunnel in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, StatusCode};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::v1::client::HttpSession as UpstreamExchange;
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::Session as Exchange;
use tokio::sync::oneshot;

use super::connection::{self, DetachedStream};
use super::{Gateway, RequestContext, sanitize_response};
use crate::domain::session::SessionId;
use crate::error::{Error, Part, TokenFault};
use crate::pipeline::upgrade::{Handshake, Negotiated};
use crate::pipeline::{Arrival, Caller, UpstreamPermit};
use crate::pipeline::{forward, record};
use crate::rules::Mode;
use crate::sockets::registry::{Opener, Registration, Registry, Room};
use crate::sockets::tunnel::{self, Ends};

/// Largest answer of an upstream that declines a handshake.
const LARGEST_DECLINE: usize = 1024 * 1024;

/// For somebody who has as many sockets open as the rule allows: one of them may close at any moment.
const TOO_MANY_SOCKETS: Error = Error::TooManySockets { retry_after: Duration::from_secs(5) };

/// What sockets are opened with.
pub struct SocketSettings {
    /// All open sockets.
    pub registry: Arc<Registry>,
    /// For the upstream's answer to a handshake.
    pub handshake: Duration,
    /// For the end of a socket.
    pub close_grace: Duration,
}

/// What became of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The tunnel runs.
    Opened,
    /// The upstream answered something else than a 101, which the client has got.
    Declined,
}

impl Gateway {
    /// Opens a permitted socket. Nothing is promised to the client before the upstream has agreed and
    /// the session has been looked at once more.
    pub(super) async fn open_socket(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
    ) -> Result<Opening, Error> {
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return Err(Error::unexpected(Part::Gateway, "no permit"));
        };
        let Some(offer) = &permit.handshake else {
            return Err(Error::unexpected(Part::Gateway, "no handshake"));
        };
        let session = permit.caller.session().map(|session| session.id.clone());
        let opener = Opener {
            session: session.clone(),
            person: permit.caller.session().map(|session| (session.corp_id.clone(), session.employee_id.clone())),
            path: offer.path.as_str().into(),
            address: arrival.client,
        };
        let registration = match self.sockets.registry.enter(opener, &permit.rule) {
            (registration, Room::Enough) => registration,
            (registration, Room::None) if permit.rule.mode == Mode::Shadow => {
                permit.rule.metrics.shadow_denied.inc();
                record::shadow(arrival, &permit.rule.name, &TOO_MANY_SOCKETS);
                registration
            }
            (_, Room::None) => return Err(TOO_MANY_SOCKETS),
        };
        let request = self.upstream_request(exchange, permit, offer, arrival)?;
        let answered = tokio::time::timeout(self.sockets.handshake, self.handshake(permit, request)).await;
        let mut upstream = answered.map_err(|_| Error::UpstreamTimeout)??;
        let Some(answer) = upstream.resp_header().cloned() else {
            return Err(Error::UpstreamFailed(None));
        };
        if answer.status != StatusCode::SWITCHING_PROTOCOLS {
            let declined = decline(exchange, &mut upstream, answer, arrival);
            tokio::time::timeout(self.sockets.handshake, declined).await.map_err(|_| Error::UpstreamTimeout)??;
            return Ok(Opening::Declined);
        }
        let switched = switched(answer, offer, arrival)?;
        self.still_allowed(session.as_ref(), &registration).await?;
        let lifetime = match &permit.caller {
            Caller::SignedIn(known) => Some(self.gate.clock.now().until(known.session.expires_at)),
            Caller::Anonymous => None,
        };
        let gone = |_| Error::UpstreamFailed(Some("the client is gone".into()));
        exchange.write_response_header(Box::new(switched), false).await.map_err(gone)?;
        // Bytes that are there already came along with the handshakes; what is still on its way waits.
        let from_client =
            exchange.read_request_body().now_or_never().and_then(Result::ok).flatten().unwrap_or_default();
        let from_upstream =
            upstream.read_body_bytes().now_or_never().and_then(Result::ok).flatten().unwrap_or_default();
        let taken = connection::take_over(exchange).ok_or_else(|| Error::unexpected(Part::Gateway, "no transport"))?;
        let far = UpstreamEnd { upstream: upstream.into_inner(), from_client, from_upstream };
        self.start(taken, far, registration, lifetime, arrival);
        Ok(Opening::Opened)
    }

    /// An end, a lost role or new rules that came before the socket was entered have not found it: it must be
    /// judged again, by the rules in force. From here on they would.
    async fn still_allowed(&self, session: Option<&SessionId>, registration: &Registration) -> Result<(), Error> {
        let known = match session {
            Some(id) => {
                let found = self.gate.live.session(id, self.gate.clock.now()).await?;
                Some(found.ok_or(Error::InvalidToken(TokenFault::Revoked))?)
            }
            None => None,
        };
        registration.follow(&self.gate.rules)?;
        registration.handle().still_admits(known.as_ref().map(|known| &known.session))
    }

    fn upstream_request(
        &self,
        exchange: &Exchange,
        permit: &UpstreamPermit,
        offer: &Handshake,
        arrival: &Arrival,
    ) -> Result<RequestHeader, Error> {
        let mut request = exchange.req_header().clone();
        for name in hop_by_hop(&request) {
            request.remove_header(&name);
        }
        request.remove_header(&SEC_WEBSOCKET_PROTOCOL);
        forward::rewrite_request(&self.gate, permit, arrival, &mut request)?;
        let broken = |_| Error::unexpected(Part::Gateway, "the handshake cannot be forwarded");
        request.insert_header(CONNECTION, "Upgrade").map_err(broken)?;
        request.insert_header(UPGRADE, "websocket").map_err(broken)?;
        if let Some(protocols) = offer.offered() {
            request.insert_header(SEC_WEBSOCKET_PROTOCOL, protocols).map_err(broken)?;
        }
        Ok(request)
    }

    /// Sends the handshake to the upstream and reads the head of its answer.
    async fn handshake(&self, permit: &UpstreamPermit, request: RequestHeader) -> Result<UpstreamExchange, Error> {
        let failed =
            |error: Box<pingora_core::Error>| Error::UpstreamFailed(Some(error.etype().as_str().to_owned().into()));
        let mut tries = 0;
        let stream = loop {
            let peer = self.upstreams.next(&permit.rule.upstream);
            match self.connector.new_stream(peer).await {
                Ok(stream) => break stream,
                Err(_) if tries < self.upstreams.retries(&permit.rule.upstream) => tries += 1,
                Err(error) => return Err(failed(error)),
            }
        };
        let mut upstream = UpstreamExchange::new(stream);
        upstream.write_request_header(Box::new(request)).await.map_err(failed)?;
        loop {
            upstream.read_response().await.map_err(failed)?;
            let interim = upstream
                .get_status()
                .is_some_and(|status| status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS);
            if !interim {
                return Ok(upstream);
            }
        }
    }

    /// Lets the tunnel run as soon as the engine lets go of the client's transport.
    fn start(
        &self,
        taken: oneshot::Receiver<DetachedStream>,
        far: UpstreamEnd,
        registration: Registration,
        lifetime: Option<Duration>,
        arrival: &Arrival,
    ) {
        let (metrics, grace) = (self.gate.metrics.clone(), self.sockets.close_grace);
        let request_id = arrival.request_id;
        tokio::spawn(async move {
            let Ok(DetachedStream { stream: client, place }) = taken.await else { return };
            let rule = registration.handle().rule().name.clone();
            let opened = std::time::Instant::now();
            let UpstreamEnd { upstream, from_client, from_upstream } = far;
            let ends = Ends { client, upstream, from_client, from_upstream };
            let ended = tunnel::run(ends, registration, lifetime, grace, metrics).await;
            drop(place);
            tracing::info!(
                target: "deskgate::socket",
                { request.id = request_id.as_str(), rule.name = &*rule, cause = ended.as_str(),
                  duration_ms = opened.elapsed().as_secs_f64() * 1000.0 },
                "socket closed"
            );
        });
    }
}

/// The upstream's end of a socket, and what came along with either handshake.
struct UpstreamEnd {
    upstream: Stream,
    from_client: Bytes,
    from_upstream: Bytes,
}

/// The 101 for the client: the upstream's, with the subprotocol that the client can accept.
fn switched(mut answer: ResponseHeader, offer: &Handshake, arrival: &Arrival) -> Result<ResponseHeader, Error> {
    let distrusted = || Error::UpstreamFailed(Some("the upstream chose a subprotocol that was not offered".into()));
    let broken = |_| Error::unexpected(Part::Gateway, "the 101 cannot be forwarded");
    let chosen = answer.headers.get(SEC_WEBSOCKET_PROTOCOL).map(|value| value.to_str().map_err(|_| distrusted()));
    let chosen = chosen.transpose()?.map(str::to_owned);
    match offer.negotiate(chosen.as_deref()) {
        Negotiated::Protocol(protocol) => answer.insert_header(SEC_WEBSOCKET_PROTOCOL, protocol).map_err(broken)?,
        Negotiated::None => {
            answer.remove_header(&SEC_WEBSOCKET_PROTOCOL);
        }
        Negotiated::NotOffered => return Err(distrusted()),
    }
    sanitize_response(&mut answer, Some(arrival)).map_err(broken)?;
    Ok(answer)
}

/// Passes on an answer that is no 101. The connection ends with it: the client may already be sending frames.
async fn decline(
    exchange: &mut Exchange,
    upstream: &mut UpstreamExchange,
    mut answer: ResponseHeader,
    arrival: &Arrival,
) -> Result<(), Error> {
    let gone = |_| Error::UpstreamFailed(Some("the client is gone".into()));
    let failed =
        |error: Box<pingora_core::Error>| Error::UpstreamFailed(Some(error.etype().as_str().to_owned().into()));
    let mut body = Vec::new();
    while let Some(piece) = upstream.read_body_bytes().await.map_err(failed)? {
        if body.len() + piece.len() > LARGEST_DECLINE {
            return Err(Error::UpstreamFailed(Some("the upstream's refusal is too large".into())));
        }
        body.extend_from_slice(&piece);
    }
    for name in [CONNECTION, UPGRADE, TRANSFER_ENCODING, HeaderName::from_static("keep-alive")] {
        answer.remove_header(&name);
    }
    sanitize_response(&mut answer, Some(arrival)).map_err(gone)?;
    answer.insert_header(http::header::CONTENT_LENGTH, body.len()).map_err(gone)?;
    exchange.set_keepalive(None);
    exchange.write_response_header(Box::new(answer), body.is_empty()).await.map_err(gone)?;
    if !body.is_empty() {
        exchange.write_response_body(Some(body.into()), true).await.map_err(gone)?;
    }
    Ok(())
}

/// Headers that concern one connection only, those that `Connection` names included.
fn hop_by_hop(request: &RequestHeader) -> Vec<HeaderName> {
    const FIXED: [&str; 7] =
        ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];
    let fixed = FIXED.into_iter().filter_map(|name| name.parse().ok());
    let named = request
        .headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse::<HeaderName>().ok())
        .filter(|name| !name.as_str().starts_with("sec-websocket"));
    fixed.chain(named).collect()
}

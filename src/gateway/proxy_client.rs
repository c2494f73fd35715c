//! The client of a request in Pingora's lane, as the gateway's own endpoints and handshakes see it, and how a reply is written
//! to it.

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use http::header::EXPECT;
use http::request::Parts;
use pingora_core::Error as PingoraError;
use pingora_core::protocols::http::ServerSession as Exchange;
use pingora_http::ResponseHeader;
use tokio::sync::oneshot;

use super::connection::{self, DetachedStream};
use super::handshake::HandshakeClient;
use crate::api::Downstream;
use crate::error::{BadRequest, Error};
use crate::pipeline::Arrival;
use crate::reply::Reply;

/// The client of a request in Pingora's lane.
pub(super) struct ProxyClient<'a> {
    exchange: &'a mut Exchange,
    /// Whether the client waits for a 100 before it sends its body.
    expects_continue: bool,
}

impl<'a> ProxyClient<'a> {
    pub(super) fn new(exchange: &'a mut Exchange) -> Self {
        let expects_continue = exchange.req_header().headers.contains_key(EXPECT);
        Self { exchange, expects_continue }
    }
}

#[async_trait]
impl Downstream for ProxyClient<'_> {
    fn head(&self) -> &Parts {
        self.exchange.req_header()
    }

    async fn read_body_part(&mut self) -> Result<Option<Bytes>, Error> {
        if std::mem::take(&mut self.expects_continue) {
            let keepalive = self.exchange.get_keepalive();
            self.exchange.write_continue_response().await.map_err(|_| BadRequest::Framing)?;
            // Writing the 100 response switches keep-alive off.
            self.exchange.set_keepalive(keepalive);
        }
        self.exchange.read_request_body().await.map_err(|_| BadRequest::Framing.into())
    }

    async fn disconnected(&mut self) {
        // It reports the end of the connection or stream as an error. Pipelined requests do not come this far.
        let _ = self.exchange.read_body_or_idle(true).await;
    }
}

#[async_trait]
impl HandshakeClient for ProxyClient<'_> {
    async fn write_switch(&mut self, response: ResponseHeader) -> pingora_core::Result<()> {
        self.exchange.write_response_header(Box::new(response)).await.map_err(PingoraError::into_down)
    }

    async fn write_last(&mut self, response: ResponseHeader, body: Bytes) -> pingora_core::Result<()> {
        self.exchange.set_keepalive(None);
        self.exchange.write_response_header(Box::new(response)).await.map_err(PingoraError::into_down)?;
        if !body.is_empty() {
            self.exchange.write_response_body(body, true).await.map_err(PingoraError::into_down)?;
        }
        Ok(())
    }

    fn detach(&mut self) -> Option<oneshot::Receiver<DetachedStream>> {
        connection::detach(self.exchange)
    }
}

/// Writes a reply; HEAD requests get its header only.
pub(super) async fn write_reply(reply: Reply, exchange: &mut Exchange, arrival: &Arrival) -> pingora_core::Result<()> {
    let head_only = exchange.req_header().method == Method::HEAD;
    let reply = reply.revalidated(&exchange.req_header().headers);
    let (parts, body) = reply.into_response(arrival).into_parts();
    let bodyless = head_only || body.is_empty();
    exchange.write_response_header(Box::new(ResponseHeader::from(parts))).await?;
    if !bodyless {
        exchange.write_response_body(body, true).await?;
    }
    Ok(())
}

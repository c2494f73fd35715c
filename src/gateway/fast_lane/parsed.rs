//! Answers requests for the gateway's own endpoints and WebSocket handshakes in the fast lane, from a parsed head.

use std::future::poll_fn;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use pingora_http::ResponseHeader;
use tokio::sync::oneshot;

use super::super::client_connection::ClientConnection;
use super::super::connection::DetachedStream;
use super::super::failure::panic_to_error;
use super::super::handshake::{HandshakeClient, UpgradeResult};
use super::super::unknown_arrival;
use super::FastExchange;
use super::client::LaneClient;
use crate::api::{self, Downstream};
use crate::domain::header_line::write_line;
use crate::error::{BadRequest, Error};
use crate::pipeline::OwnCall;

/// The client of a request whose head is parsed.
struct ParsedClient<'a, 'b> {
    client: &'a mut LaneClient<'b>,
    head: &'a Parts,
}

#[async_trait]
impl Downstream for ParsedClient<'_, '_> {
    fn head(&self) -> &Parts {
        self.head
    }

    async fn read_body_part(&mut self) -> Result<Option<Bytes>, Error> {
        let mut part = Vec::new();
        // A read may bring nothing but the framing of chunks. If it fails, the connection knows better why: see `answer_own`.
        while part.is_empty() && !self.client.is_body_read() {
            poll_fn(|cx| self.client.poll_body(&mut part, cx)).await.map_err(|_| BadRequest::Framing)?;
        }
        Ok((!part.is_empty()).then(|| part.into()))
    }

    async fn disconnected(&mut self) {
        poll_fn(|cx| self.client.connection.poll_disconnected(cx)).await;
    }
}

#[async_trait]
impl HandshakeClient for ParsedClient<'_, '_> {
    async fn write_switch(&mut self, response: ResponseHeader) -> pingora_core::Result<()> {
        let head = encode_head(&response, |_| {});
        self.client.write(&head, |_, _| Ok(())).await
    }

    async fn write_last(&mut self, response: ResponseHeader, body: Bytes) -> pingora_core::Result<()> {
        let mut bytes = encode_head(&response, |out| ClientConnection::Close.write_lines(Instant::now(), out));
        bytes.extend_from_slice(&body);
        self.client.write(&bytes, |_, _| Ok(())).await
    }

    fn detach(&mut self) -> Option<oneshot::Receiver<DetachedStream>> {
        Some(self.client.connection.detach())
    }
}

fn encode_head(response: &ResponseHeader, write_last_lines: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let reason = response.get_reason_phrase().unwrap_or_default();
    let mut out = format!("HTTP/1.1 {} {reason}\r\n", response.status.as_str()).into_bytes();
    for (name, value) in &response.headers {
        write_line(&mut out, name.as_str(), value.as_bytes());
    }
    write_last_lines(&mut out);
    out.extend_from_slice(b"\r\n");
    out
}

impl FastExchange<'_> {
    /// Opens a socket. Its tunnel gets the client's connection.
    pub(super) async fn open_socket(&mut self) -> pingora_core::Result<()> {
        // The client may already be sending frames, which no further request could be told from.
        self.follows = ClientConnection::Close;
        let head = match self.request.parts() {
            Ok(head) => head,
            Err(error) => return self.refuse(error).await,
        };
        let gateway = self.gateway;
        let mut client = ParsedClient { client: &mut self.client, head: &head };
        let opening = gateway.open_socket(&mut client, &mut self.context);
        match panic_to_error(&gateway.gate.metrics, opening).await {
            Ok(UpgradeResult::Upgraded) => self.status = StatusCode::SWITCHING_PROTOCOLS.as_u16(),
            Ok(UpgradeResult::Declined(status)) => self.status = status.as_u16(),
            Ok(UpgradeResult::Unsent(status, error)) => {
                self.status = status.as_u16();
                return self.fail(error).await;
            }
            Err(error) => return self.refuse(error).await,
        }
        Ok(())
    }

    /// Answers a request for one of the gateway's own endpoints.
    pub(super) async fn answer_own(&mut self, call: &OwnCall) -> pingora_core::Result<()> {
        let head = match self.request.parts() {
            Ok(head) => head,
            Err(error) => return self.refuse(error).await,
        };
        let arrival = self.context.arrival.get_or_insert_with(unknown_arrival);
        let mut client = ParsedClient { client: &mut self.client, head: &head };
        let answering = api::answer(&self.gateway.api, call, &mut client, arrival);
        let answering = panic_to_error(&self.gateway.gate.metrics, answering);
        let answer = match &mut self.context.attempts.trace {
            None => answering.await,
            Some(trace) => Box::pin(trace.watch_calls(answering)).await,
        };
        match answer {
            Ok(reply) => self.write_reply(reply.revalidated(&head.headers)).await,
            Err(error) => {
                let error = self.client.body_error().unwrap_or(error);
                self.refuse(error).await
            }
        }
    }
}

//! Refusals of requests before they are examined: neither the pipeline nor the lanes see them, so they are logged here.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;

use super::client_connection::ClientConnection;
use super::context::{NO_ADDRESS, unknown_arrival};
use crate::error::Error;
use crate::metrics::RefusalMetrics;
use crate::pipeline::journal::RequestJournal;
use crate::pipeline::{Arrival, record};
use crate::reply::Reply;

/// The refusal when the gateway cannot serve a request in time. By then others may have ended.
pub(super) const SATURATED: Error = Error::Saturated { retry_after: Duration::from_secs(2) };

/// Where refusals are counted and kept.
#[derive(Debug, Clone)]
pub(crate) struct EarlyRefusals {
    pub(crate) metrics: Arc<RefusalMetrics>,
    pub(crate) journal: Arc<RequestJournal>,
}

/// What stands for the method and the path of a request whose head was not parsed.
const NOT_PARSED: &str = "-";

/// Builds the refusal of a request, counts it, keeps it and logs it.
fn build(client: IpAddr, (method, path): (&str, &str), error: &Error, refusals: &EarlyRefusals) -> (Reply, Arrival) {
    refusals.metrics.count(error.code());
    let arrival = Arrival { client, peer: client, ..unknown_arrival() };
    record::refused_early(&refusals.journal, &arrival, method, path, error);
    tracing::info!(
        target: "deskgate::request",
        { request.id = arrival.request_id.as_str(), client.address = %client, code = error.code().number() },
        "refused before a request was examined: {error}"
    );
    (Reply::refusal(&arrival, error), arrival)
}

/// The refusal in HTTP/1.1, for a connection without a parsed request. `head` is what has been read of it.
pub(super) fn encode(client: IpAddr, head: &[u8], error: &Error, refusals: &EarlyRefusals) -> Vec<u8> {
    let (reply, arrival) = build(client, (NOT_PARSED, NOT_PARSED), error, refusals);
    let mut out = Vec::new();
    reply.encode(&arrival, &mut out, |out| ClientConnection::Close.write_lines(Instant::now(), out));
    if head.starts_with(b"HEAD ") {
        out.truncate(out.len() - reply.body_length());
    }
    out
}

/// Refuses a request whose head has been parsed, as on HTTP/2.
pub(super) async fn write(
    exchange: &mut ServerSession,
    error: &Error,
    refusals: &EarlyRefusals,
) -> pingora_core::Result<()> {
    let client = exchange.client_addr().and_then(|address| Some(address.as_inet()?.ip()));
    let head = exchange.req_header();
    let request = (head.method.as_str(), head.uri.path());
    let (reply, arrival) = build(client.unwrap_or(NO_ADDRESS), request, error, refusals);
    let (parts, body) = reply.into_response(&arrival).into_parts();
    exchange.write_response_header(Box::new(ResponseHeader::from(parts))).await?;
    if exchange.req_header().method != Method::HEAD {
        exchange.write_response_body(body, true).await?;
    }
    exchange.finish_body().await
}

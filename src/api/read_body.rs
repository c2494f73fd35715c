//! Reads a whole request body, with a limit for its size and for its time. Pingora limits neither.

use std::time::Duration;

use bytes::Bytes;
use pingora_proxy::Session as Exchange;

use crate::error::{BadRequest, Error};

/// Reads a body of at most `max_bytes` within `deadline`.
pub async fn read_body(exchange: &mut Exchange, max_bytes: usize, deadline: Duration) -> Result<Bytes, Error> {
    let length = exchange.get_header("content-length").and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > max_bytes) {
        return Err(Error::BodyTooLarge);
    }
    let keepalive = exchange.get_keepalive();
    if exchange.get_header("expect").is_some() {
        exchange.write_continue_response().await.map_err(|_| BadRequest::Framing)?;
        // Writing the 100 response switches keep-alive off.
        exchange.set_keepalive(keepalive);
    }
    let deadline = tokio::time::Instant::now() + deadline;
    let mut body = Vec::new();
    loop {
        match tokio::time::timeout_at(deadline, exchange.read_request_body()).await {
            Err(_) => return Err(Error::RequestTimeout),
            Ok(Err(_)) => return Err(BadRequest::Framing.into()),
            Ok(Ok(None)) => return Ok(body.into()),
            Ok(Ok(Some(chunk))) if body.len() + chunk.len() > max_bytes => return Err(Error::BodyTooLarge),
            Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
        }
    }
}

//! Reads a whole request body, with a limit for its size and for its time.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;

use super::downstream::Downstream;
use crate::error::Error;

/// Reads a body of at most `max_bytes` within `deadline`.
pub async fn read_body(client: &mut dyn Downstream, max_bytes: usize, deadline: Duration) -> Result<Bytes, Error> {
    let length = client.head().headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > max_bytes) {
        return Err(Error::BodyTooLarge);
    }
    let deadline = tokio::time::Instant::now() + deadline;
    let mut body = Vec::new();
    loop {
        match tokio::time::timeout_at(deadline, client.read_body_part()).await {
            Err(_) => return Err(Error::RequestTimeout),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(None)) => return Ok(body.into()),
            Ok(Ok(Some(part))) if body.len() + part.len() > max_bytes => return Err(Error::BodyTooLarge),
            Ok(Ok(Some(part))) => body.extend_from_slice(&part),
        }
    }
}

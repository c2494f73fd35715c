//! The client of a request, as the gateway's own endpoints see it. Both lanes of `gateway` implement it.

use async_trait::async_trait;
use bytes::Bytes;
use http::request::Parts;

use crate::error::Error;

/// The client's side of a request.
#[async_trait]
pub trait Downstream: Send + Sync {
    /// The head of the request.
    fn head(&self) -> &Parts;

    /// The next part of the body; `None` at its end. A client that waits for a 100 before it sends the body gets one.
    async fn read_body_part(&mut self) -> Result<Option<Bytes>, Error>;

    /// Resolves when the client has disconnected.
    async fn disconnected(&mut self);
}

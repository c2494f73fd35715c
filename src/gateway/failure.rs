//! Turns Pingora's errors and panics into the gateway's own errors. Writing the refusal is left to the lanes.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use pingora_core::protocols::http::v2::client::PING_TIMEDOUT;
use pingora_core::{ErrorSource, ErrorType};

use crate::error::{BadRequest, Error, Part};
use crate::metrics::Metrics;
use crate::upstreams::TOTAL_TIMEOUT;

/// The internal cause of a 1005 after a panic.
pub(super) const PANICKED: &str = "a handler panicked";

#[derive(Debug)]
pub(super) struct Panicked;

/// Runs a handler and counts its panic, so that a panic fails one request and not its connection.
///
/// Not an `async fn`, which would hold the handler twice: once as its argument and once while it runs.
pub(super) fn catch_panic<T>(
    metrics: &Metrics,
    handler: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Panicked>> {
    AssertUnwindSafe(handler).catch_unwind().map(|outcome| {
        outcome.map_err(|_| {
            metrics.panics.inc();
            Panicked
        })
    })
}

/// Runs a handler; a panic becomes a 1005.
pub(super) fn panic_to_error<T>(
    metrics: &Metrics,
    handler: impl Future<Output = Result<T, Error>>,
) -> impl Future<Output = Result<T, Error>> {
    let unexpected = |Panicked| Err(Error::unexpected(Part::Gateway, PANICKED));
    catch_panic(metrics, handler).map(move |outcome| outcome.unwrap_or_else(unexpected))
}

/// The error for the client after an exchange has failed; None if the client can be told nothing, because it has closed its connection or
/// does not read.
pub(super) fn client_error(error: &pingora_core::Error) -> Option<Error> {
    let cause = || Some(error.etype().as_str().to_owned().into());
    match (error.esource(), error.etype()) {
        (ErrorSource::Downstream, ErrorType::ReadTimedout) => Some(Error::RequestTimeout),
        (
            ErrorSource::Downstream,
            ErrorType::ConnectionClosed
            | ErrorType::H2Error
            | ErrorType::ReadError
            | ErrorType::WriteError
            | ErrorType::WriteTimedout,
        ) => None,
        (ErrorSource::Downstream, ErrorType::InvalidHTTPHeader) => Some(BadRequest::Head.into()),
        (ErrorSource::Downstream, _) => Some(BadRequest::Framing.into()),
        (_, ErrorType::ReadTimedout | ErrorType::WriteTimedout | ErrorType::ConnectTimedout) => {
            Some(Error::UpstreamTimeout)
        }
        (_, etype) if *etype == TOTAL_TIMEOUT || *etype == PING_TIMEDOUT => Some(Error::UpstreamTimeout),
        (ErrorSource::Internal, _) => Some(Error::unexpected(Part::Gateway, error.etype().as_str().to_owned())),
        _ => Some(Error::UpstreamFailed(cause())),
    }
}

/// A failure that is a fault of the gateway.
pub(super) fn internal_error(reason: &'static str) -> Box<pingora_core::Error> {
    pingora_core::Error::explain(ErrorType::InternalError, reason).into_in()
}

#[cfg(test)]
mod tests;

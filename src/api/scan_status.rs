//! `GET /api/auth/scan/status`

use std::time::Duration;

use super::cookies;
use super::request::ApiRequest;
use crate::error::{BadRequest, Error};
use crate::signin::tickets::{TicketPoll, TicketStatus, Tickets};

/// Longest `wait` parameter, in seconds.
const MAX_WAIT: u64 = 25;

/// Returns a ticket's status, at once or when it changes. `ticket` is required; `wait` (seconds) and the status that the
/// client has `seen` are optional. Ends when the client has `disconnected`.
pub async fn poll(
    tickets: &Tickets,
    request: &ApiRequest,
    disconnected: impl Future<Output = ()>,
) -> Result<TicketStatus, Error> {
    let query = &request.query;
    // An empty ticket is accepted and reported as expired, like any other unknown one.
    let ticket = query.optional("ticket")?.ok_or(BadRequest::Missing("ticket"))?;
    let wait = match query.optional("wait")? {
        None => 0,
        Some(text) => text.parse().ok().filter(|wait| *wait <= MAX_WAIT).ok_or(BadRequest::Parameter("wait"))?,
    };
    let poll = TicketPoll {
        ticket,
        cookie: cookies::browser_value(request),
        wait: Duration::from_secs(wait),
        seen: query.optional("seen")?,
        device: &request.device,
    };
    tickets.poll(poll, disconnected).await
}

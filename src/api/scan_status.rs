//! `GET /api/auth/scan/status`

use std::time::Duration;

use super::incoming::{Incoming, Query};
use super::qrcode::BROWSER_COOKIE;
use crate::error::{BadRequest, Error};
use crate::signin::SignIn;
use crate::signin::ticket::ScanState;

/// Longest `wait` that may be asked for.
const LONGEST_WAIT: u64 = 25;

/// What a poll asks.
#[derive(Debug)]
pub struct Poll {
    ticket: String,
    wait: Duration,
    seen: Option<String>,
}

impl Poll {
    /// `ticket`, and optionally `wait` in seconds and the status that the caller has `seen`.
    pub fn of(query: &Query) -> Result<Self, Error> {
        // An empty ticket is nobody's, and expired like any other unknown one.
        let ticket = query.optional("ticket")?.ok_or(BadRequest::Missing("ticket"))?.to_owned();
        let wait = match query.optional("wait")? {
            None => 0,
            Some(text) => {
                text.parse().ok().filter(|wait| *wait <= LONGEST_WAIT).ok_or(BadRequest::Parameter("wait"))?
            }
        };
        let seen = query.optional("seen")?.map(str::to_owned);
        Ok(Self { ticket, wait: Duration::from_secs(wait), seen })
    }
}

/// Tells where a ticket stands, at once or when it moves.
pub async fn poll(signin: &SignIn, poll: &Poll, incoming: &Incoming) -> Result<ScanState, Error> {
    signin.poll_ticket(&poll.ticket, incoming.cookie(BROWSER_COOKIE), poll.wait, poll.seen.as_deref()).await
}

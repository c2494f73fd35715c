//! What operators see of single requests: followers get each one as it ends, and the last refusals are kept in memory. No
//! request waits for either, and an accepted request that nobody follows pays one relaxed load.

use std::fmt;
use std::sync::Arc;

use crate::domain::clock::{Clock, Timestamp};
use crate::domain::finished_request::{FinishedRequest, RefusedRequest};

mod followers;

mod kept_refusal;

mod refusals;

pub use followers::{Followers, RequestFollower, TooManyFollowers};

use refusals::Refusals;

/// The followers of requests and the last refusals.
pub struct RequestJournal {
    /// Who follows requests.
    pub followers: Arc<Followers>,
    refusals: Refusals,
    clock: Clock,
    started_at: Timestamp,
}

/// Without the requests, which may be many.
impl fmt::Debug for RequestJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestJournal").field("started_at", &self.started_at).finish_non_exhaustive()
    }
}

/// What followers select requests by.
#[derive(Debug, Clone, Copy)]
pub struct FollowedRequest<'a> {
    /// Whether it was refused, failed, was cut or lost its client.
    pub is_unusual: bool,
    /// The rule or endpoint.
    pub rule: Option<&'a str>,
    /// The employee.
    pub employee_id: Option<&'a str>,
}

impl RequestJournal {
    /// An empty journal that begins now.
    pub fn new(clock: Clock) -> Self {
        let started_at = clock.now();
        Self { followers: Arc::default(), refusals: Refusals::default(), clock, started_at }
    }

    /// The time of a request that ends now.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Shows a request to the followers that want it.
    pub fn publish(&self, selected_by: FollowedRequest<'_>, request: impl FnOnce() -> Arc<FinishedRequest<'static>>) {
        self.followers.publish(selected_by, request);
    }

    /// Keeps a refusal and forgets the oldest ones beyond the limits.
    pub fn remember(&self, refused: &RefusedRequest<'_>) {
        self.refusals.push(refused);
    }

    /// The refusals with this request id, the newest first. A client that repeats a request may repeat its id.
    pub fn refusals_of(&self, request_id: &str) -> Vec<RefusedRequest<'static>> {
        self.refusals.find(request_id)
    }

    /// How many refusals are kept, and since when: none of later ones is missing.
    pub fn kept(&self) -> (usize, Timestamp) {
        let (count, forgotten_at) = self.refusals.extent();
        (count, forgotten_at.unwrap_or(self.started_at))
    }
}

#[cfg(test)]
mod tests;

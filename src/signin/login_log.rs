//! Records sign-in attempts. Each one is an audit log line and counts in `signin_total`. The login log gets each success
//! and each proved failure; failures that prove nothing are capped per minute.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::attempt::{Attempt, Evidence, reason};
use crate::directory::{Directory, LoginResult};
use crate::domain::clock::Clock;
use crate::error::{Error, chain};
use crate::metrics::Metrics;

/// Unverified failures of one kind that the login log takes per minute. Users who decline at the platform and agents
/// who mistype are fewer.
const MAX_UNVERIFIED_PER_MINUTE: u32 = 60;

/// Caps the login-log rows of unverified failures. Each kind has its own count, so that one cannot crowd out the other.
#[derive(Debug, Default)]
struct UnverifiedLogCap {
    nameless: Mutex<MinuteCount>,
    /// Known and unknown names share this count. If only unknown names were capped, then above the cap a refusal that
    /// writes a row would take longer than one that writes none, and its time would reveal which names exist.
    claimed: Mutex<MinuteCount>,
}

#[derive(Debug, Default)]
struct MinuteCount {
    minute: u64,
    count: u32,
}

impl UnverifiedLogCap {
    /// Whether the login log takes one more failure like this one at this monotonic time.
    fn admit(&self, attempt: &Attempt<'_>, now: Duration) -> bool {
        let counter = match attempt.evidence() {
            Some(Evidence::Proved) => return true,
            Some(Evidence::Claimed) => &self.claimed,
            None => &self.nameless,
        };
        let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = now.as_secs() / 60;
        if counter.minute != minute {
            *counter = MinuteCount { minute, count: 0 };
        }
        counter.count = counter.count.saturating_add(1);
        counter.count <= MAX_UNVERIFIED_PER_MINUTE
    }
}

/// Writes sign-in attempts to the login log, the log and the metrics.
pub(super) struct LoginLog {
    directory: Arc<dyn Directory>,
    clock: Clock,
    metrics: Arc<Metrics>,
    cap: UnverifiedLogCap,
}

impl LoginLog {
    pub(super) fn new(directory: Arc<dyn Directory>, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self { directory, clock, metrics, cap: UnverifiedLogCap::default() }
    }

    /// Writes a success, before the session exists. If the write fails, so does the sign-in.
    pub(super) async fn record_success(&self, attempt: &Attempt<'_>) -> Result<(), Error> {
        Ok(self.directory.record_login(attempt.record(LoginResult::Success)).await?)
    }

    /// Writes a failure. The refusal stands even if this write fails.
    pub(super) async fn record_refusal(&self, attempt: &Attempt<'_>, error: &Error) {
        self.record_failure(attempt, attempt.internal_reason.unwrap_or_else(|| reason(error)), &chain(error)).await;
    }

    /// Writes that a member of a connected corporation must bind an employee account first.
    pub(super) async fn record_unbound(&self, attempt: &Attempt<'_>) {
        self.record_failure(attempt, "unbound", "a member of a connected corporation without an employee account")
            .await;
    }

    async fn record_failure(&self, attempt: &Attempt<'_>, reason: &'static str, detail: &str) {
        let record = attempt.record(LoginResult::Refused(reason));
        tracing::info!(
            target: "deskgate::audit",
            { request.id = &*attempt.device.request_id, employee.id = record.employee_id, corp.id = record.corp_id, login.method = record.method.as_str(),
              login.client = attempt.client_label(), platform.account = record.platform_account.map(tracing::field::display),
              client.address = record.address, reason = detail },
            "sign-in refused: {reason}"
        );
        self.count(attempt, "refused");
        // Unauthenticated clients could fill the table, so their rows are capped; the line above is always written.
        if !self.cap.admit(attempt, self.clock.running()) {
            return;
        }
        if let Err(error) = self.directory.record_login(record).await {
            tracing::error!(error = %chain(&error), "cannot write a refused sign-in to the login log");
        }
    }

    /// Counts the result of an attempt in `signin_total`.
    pub(super) fn count(&self, attempt: &Attempt<'_>, result: &'static str) {
        self.metrics.signin.with_label_values(&[attempt.method.as_str(), attempt.client_label(), result]).inc();
    }

    /// Removes rows older than `retention`.
    pub(super) async fn prune(&self, retention: Duration) {
        if let Err(error) = self.directory.prune_login_log(retention).await {
            tracing::warn!(error = %chain(&error), "cannot prune the login log");
        }
    }
}

//! The recheck: asks the platform again and again about everyone who has a live session or a local password.
//!
//! The directory holds the queue, in the order in which the platform was last asked, so a restart goes on where the
//! last process stopped. Of several gateways one asks at a time, about one employee at a time, at a pace that spreads the
//! queue over the interval: a backlog, such as after an outage, is worked off at the same pace and never in a burst.

use std::sync::Arc;
use std::time::Duration;

use super::membership::{Finding, Membership};
use crate::directory::Directory;
use crate::directory::membership::RecheckEntry;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::employee::{Employee, Standing};
use crate::domain::session::EndCause;
use crate::domain::write::WriteOutcome;
use crate::error::{Error, chain};
use crate::metrics::Metrics;
use crate::platform::{MemberStatus, PlatformError};
use crate::sessions::SessionCache;
use crate::store::work_leases::{LeaseOutcome, Work, WorkLeases};

/// The shortest time between two questions: 600 a minute, where the platform allows 10,000.
const MIN_PACE: Duration = Duration::from_millis(100);

/// A short queue is looked at this often within the interval, so that no one is asked about much too late.
const LOOKS_PER_INTERVAL: u32 = 60;

/// An employee about whom the platform did not answer is asked about again after this part of the interval.
const RETRY_PART: u32 = 12;

/// More than the platform's calls of one step may take.
const LONGEST_STEP: Duration = Duration::from_secs(60);

/// The result of one step; the label of `platform_rechecks_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecheckResult {
    Active,
    Inactive,
    OutOfSight,
    NotAMember,
    /// The platform did not answer, or refused the question.
    Unreachable,
    /// The circuit is open: no call was made.
    Paused,
    /// The directory or the store failed.
    Failed,
}

impl RecheckResult {
    const ALL: [RecheckResult; 7] = [
        Self::Active,
        Self::Inactive,
        Self::OutOfSight,
        Self::NotAMember,
        Self::Unreachable,
        Self::Paused,
        Self::Failed,
    ];

    fn as_str(self) -> &'static str {
        match self {
            RecheckResult::Active => "active",
            RecheckResult::Inactive => "inactive",
            RecheckResult::OutOfSight => "out_of_sight",
            RecheckResult::NotAMember => "not_a_member",
            RecheckResult::Unreachable => "unreachable",
            RecheckResult::Paused => "paused",
            RecheckResult::Failed => "failed",
        }
    }

    /// Whether the platform has answered, and what it said was applied.
    fn is_answer(self) -> bool {
        match self {
            Self::Active | Self::Inactive | Self::OutOfSight | Self::NotAMember => true,
            Self::Unreachable | Self::Paused | Self::Failed => false,
        }
    }
}

/// Since when no recheck has had an answer. An employee about whom the platform did not answer is asked about later, so
/// the queue alone does not tell how late the recheck is.
#[derive(Debug, Default)]
struct Silence(Option<Timestamp>);

impl Silence {
    fn note(&mut self, result: RecheckResult, now: Timestamp) {
        self.0 = if result.is_answer() { None } else { self.0.or(Some(now)) };
    }

    fn lasted(&self, now: Timestamp) -> Duration {
        self.0.map_or(Duration::ZERO, |since| since.until(now))
    }
}

impl From<Finding> for RecheckResult {
    fn from(finding: Finding) -> Self {
        match finding {
            Finding::Active => RecheckResult::Active,
            Finding::Inactive => RecheckResult::Inactive,
            Finding::OutOfSight => RecheckResult::OutOfSight,
            Finding::NotAMember => RecheckResult::NotAMember,
        }
    }
}

/// Asks the platform about employees in the background.
pub struct Recheck {
    pub(super) membership: Arc<Membership>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) sessions: Arc<SessionCache>,
    pub(super) leases: Arc<dyn WorkLeases>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    /// `platform.recheck`; zero: off.
    pub(super) interval: Duration,
}

impl Recheck {
    /// Whether `platform.recheck` is on.
    pub fn is_on(&self) -> bool {
        !self.interval.is_zero()
    }

    /// Runs until the task is cancelled.
    pub async fn run(&self) {
        for result in RecheckResult::ALL {
            self.metrics.platform_rechecks.with_label_values(&[result.as_str()]);
        }
        let mut silence = Silence::default();
        loop {
            let queued = match self.step(&mut silence).await {
                Ok(queued) => queued,
                Err(error) => {
                    self.note(RecheckResult::Failed, &mut silence);
                    let overdue = &self.metrics.platform_recheck_overdue;
                    overdue.set(overdue.get().max(silence.lasted(self.clock.now()).as_secs_f64()));
                    tracing::warn!(error = %chain(&error), "could not recheck an employee at the platform; retrying");
                    0
                }
            };
            tokio::time::sleep(pace(self.interval, queued)).await;
        }
    }

    /// Makes rechecks due that lie far ahead because the clock was set back.
    pub(super) async fn limit(&self) {
        if self.is_on()
            && let Err(error) = self.directory.limit_rechecks().await
        {
            tracing::warn!(error = %chain(&error), "cannot correct the times of rechecks; retrying in a minute");
        }
    }

    /// Asks about the head of the queue, if it is due and no other gateway does. Returns the length of the queue, as far
    /// as the pace depends on it.
    async fn step(&self, silence: &mut Silence) -> Result<usize, Error> {
        let entry = match self.leases.acquire(Work::Recheck, lease(self.interval)).await? {
            LeaseOutcome::HeldElsewhere => None,
            LeaseOutcome::Granted => self.directory.next_recheck(most_counted(self.interval)).await?,
        };
        let Some(entry) = entry else {
            *silence = Silence::default();
            self.metrics.platform_recheck_overdue.set(0.0);
            return Ok(0);
        };
        let (now, due) = (self.clock.now(), entry.checked_at.plus(self.interval));
        self.metrics.platform_recheck_overdue.set(due.until(now).max(silence.lasted(now)).as_secs_f64());
        if now < due {
            return Ok(entry.queued);
        }
        if let Some(employee) = self.employee_to_ask_about(&entry).await?
            && let Some(result) = self.ask_about(&employee, &entry).await?
        {
            self.note(result, silence);
        }
        Ok(entry.queued)
    }

    /// The employee of an entry. Removes the entry of an employee who cannot sign in or has nothing to lose.
    async fn employee_to_ask_about(&self, entry: &RecheckEntry) -> Result<Option<Employee>, Error> {
        let employee = self.directory.employee(&entry.corp_id, &entry.employee_id).await?;
        if !employee.as_ref().is_some_and(|employee| employee.standing == Standing::Active) {
            // Whatever disabled the employee may have failed before it ended the sessions.
            self.membership.end_sessions(entry.account(), EndCause::of_barred(employee.as_ref())).await?;
        } else if self.has_access(entry).await? {
            return Ok(employee);
        }
        self.directory.move_recheck(entry, None).await?;
        // A sign-in queues the employee after its session is stored, and so may have come before the removal.
        if self.has_access(entry).await? {
            self.directory.queue_recheck(entry.account()).await?;
        }
        Ok(None)
    }

    /// Whether an employee has a live session or a local password.
    async fn has_access(&self, entry: &RecheckEntry) -> Result<bool, Error> {
        let agent = self.directory.agent(entry.account()).await?;
        if agent.is_some_and(|agent| agent.password.is_some()) {
            return Ok(true);
        }
        Ok(!self.sessions.store().of_employee(&entry.corp_id, &entry.employee_id).await?.is_empty())
    }

    /// Moves the entry to the end of the queue, so that no other gateway asks too, and asks. `None` if another one does.
    async fn ask_about(&self, employee: &Employee, entry: &RecheckEntry) -> Result<Option<RecheckResult>, Error> {
        let now = self.clock.now();
        if self.directory.move_recheck(entry, Some(now)).await? == WriteOutcome::Conflict {
            return Ok(None);
        }
        let moved = RecheckEntry { checked_at: now, ..entry.clone() };
        // Behind the others: an employee about whom the platform never answers must not hold them up.
        let retry = now.plus(self.interval / RETRY_PART).minus(self.interval);
        match self.membership.ask(employee).await {
            Ok(status) => match self.apply(employee, status).await {
                Ok(finding) => Ok(Some(finding.into())),
                Err(error) => {
                    // The employee may be disabled already, and the sessions not ended.
                    self.directory.move_recheck(&moved, Some(retry)).await?;
                    Err(error)
                }
            },
            Err(PlatformError::CircuitOpen { .. }) => {
                self.directory.move_recheck(&moved, Some(entry.checked_at)).await?;
                Ok(Some(RecheckResult::Paused))
            }
            Err(_) => {
                self.directory.move_recheck(&moved, Some(retry)).await?;
                Ok(Some(RecheckResult::Unreachable))
            }
        }
    }

    /// Applies what the platform says about an employee and then, unless that disabled them, about their links.
    async fn apply(&self, employee: &Employee, status: MemberStatus) -> Result<Finding, Error> {
        match self.membership.apply(employee, status).await? {
            Finding::Inactive => Ok(Finding::Inactive),
            // The employee may be a member of a connected corporation, or of both.
            own => Ok(self.membership.recheck_links(employee, MIN_PACE).await?.unwrap_or(own)),
        }
    }

    fn note(&self, result: RecheckResult, silence: &mut Silence) {
        silence.note(result, self.clock.now());
        self.metrics.platform_rechecks.with_label_values(&[result.as_str()]).inc();
    }
}

/// The time between two steps: the interval divided among the queue, within limits.
fn pace(interval: Duration, queued: usize) -> Duration {
    let looks = u32::try_from(queued).unwrap_or(u32::MAX).max(LOOKS_PER_INTERVAL);
    (interval / looks).max(MIN_PACE)
}

/// How long one gateway rechecks before another may: longer than its longest pause and its slowest step.
fn lease(interval: Duration) -> Duration {
    pace(interval, 0) + LONGEST_STEP
}

/// The length from which a longer queue does not change the pace. Counting a million at each step would take a third of a
/// core.
fn most_counted(interval: Duration) -> usize {
    usize::try_from(interval.as_millis().div_ceil(MIN_PACE.as_millis())).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;

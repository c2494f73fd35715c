//! Brute-force protection: every password or one-time code that a client tries is charged to the account before it is
//! checked, and a success clears the count.

use std::sync::Arc;

use crate::directory::Directory;
use crate::directory::factors::{Account, FactorKind};
use crate::domain::clock::Clock;
use crate::domain::lockout::{self, FailedAttempts, Lockout};
use crate::domain::session::Version;
use crate::domain::write::WriteOutcome;
use crate::error::{Error, chain};

/// Most lockout records kept for names that belong to no employee. An attacker who wants one evicted before its lock
/// ends must try this many other names meanwhile, and each try takes a slot in the password queue.
const MAX_UNKNOWN_LOCKOUTS: usize = 100_000;

/// An attempt that was charged, with the record that it replaced.
pub(super) struct AttemptCharge {
    factor: FactorKind,
    before: Lockout,
    seen: Version,
    /// The failures before this attempt, for the owner to see after a success.
    pub(super) failed_attempts: FailedAttempts,
}

/// Counts failed attempts per account.
#[derive(Clone)]
pub(super) struct Lockouts {
    directory: Arc<dyn Directory>,
    clock: Clock,
}

impl Lockouts {
    pub(super) fn new(directory: Arc<dyn Directory>, clock: Clock) -> Self {
        Self { directory, clock }
    }

    /// Counts an attempt as failed before it is made, and refuses it if the account is locked. The compare-and-set loop
    /// counts parallel attempts one by one.
    pub(super) async fn charge(&self, factor: FactorKind, account: Account<'_>) -> Result<AttemptCharge, Error> {
        loop {
            let (stored, seen) = self.directory.lockout(factor, account).await?;
            let now = self.clock.now();
            let mut before = stored.clone();
            before.limit_to(now);
            let mut lockout = before.clone();
            let charged = lockout.charge(now).map_err(|locked| Error::Locked { retry_after: locked.retry_after });
            // A refused attempt is not counted, so there is nothing to write unless the clock was set back.
            let outcome = if lockout == stored {
                WriteOutcome::Applied
            } else {
                self.directory.replace_lockout(factor, account, &lockout, seen).await?
            };
            if outcome == WriteOutcome::Applied {
                return charged.map(|failed_attempts| AttemptCharge { factor, before, seen, failed_attempts });
            }
        }
    }

    /// Undoes a charge, unless another attempt was charged since: then both stay counted.
    pub(super) async fn refund(&self, account: Account<'_>, charge: &AttemptCharge) -> Result<(), Error> {
        self.directory.replace_lockout(charge.factor, account, &charge.before, charge.seen.next()).await?;
        Ok(())
    }

    /// Clears the count after a success.
    pub(super) async fn clear(&self, factor: FactorKind, account: Account<'_>) -> Result<(), Error> {
        loop {
            let (mut lockout, seen) = self.directory.lockout(factor, account).await?;
            lockout.on_success();
            if self.directory.replace_lockout(factor, account, &lockout, seen).await? == WriteOutcome::Applied {
                return Ok(());
            }
        }
    }

    /// Removes old records of names that belong to no employee.
    pub(super) async fn prune(&self) {
        if let Err(error) = self.directory.prune_unknown_lockouts(lockout::QUIET, MAX_UNKNOWN_LOCKOUTS).await {
            tracing::warn!(error = %chain(&error), "cannot prune lockouts of unknown names");
        }
    }
}

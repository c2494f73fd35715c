//! How often accounts are tried, with passwords and with codes: charged before the try, forgiven after a success.

use std::sync::Arc;

use crate::directory::Directory;
use crate::directory::factors::{Account, FactorKind};
use crate::domain::clock::Clock;
use crate::domain::lockout::{FailedAttempts, Lockout};
use crate::domain::session::Version;
use crate::domain::write::WriteOutcome;
use crate::error::Error;

/// A try that was charged: what stood there before, and what to tell the owner if it succeeds.
pub(super) struct Charged {
    tried: FactorKind,
    before: Lockout,
    seen: Version,
    /// What to tell.
    pub(super) told: FailedAttempts,
}

/// Counts tries.
#[derive(Clone)]
pub(super) struct Tries {
    directory: Arc<dyn Directory>,
    clock: Clock,
}

impl Tries {
    pub(super) fn new(directory: Arc<dyn Directory>, clock: Clock) -> Self {
        Self { directory, clock }
    }

    /// Charges a try to an account, as failed; a locked one is refused. Many at once are counted one by one.
    pub(super) async fn charge(&self, tried: FactorKind, whose: Account<'_>) -> Result<Charged, Error> {
        loop {
            let (before, seen) = self.directory.lockout(tried, whose).await?;
            let mut lockout = before.clone();
            let told =
                lockout.charge(self.clock.now()).map_err(|locked| Error::Locked { retry_after: locked.retry_after })?;
            if self.directory.replace_lockout(tried, whose, &lockout, seen).await? == WriteOutcome::Applied {
                return Ok(Charged { tried, before, seen, told });
            }
        }
    }

    /// Takes a charge back, unless somebody has tried since: theirs counts then, and this one with it.
    pub(super) async fn take_back(&self, whose: Account<'_>, charged: &Charged) -> Result<(), Error> {
        self.directory.replace_lockout(charged.tried, whose, &charged.before, charged.seen.next()).await?;
        Ok(())
    }

    /// Forgets failed tries after a success.
    pub(super) async fn forgive(&self, tried: FactorKind, whose: Account<'_>) -> Result<(), Error> {
        loop {
            let (mut lockout, seen) = self.directory.lockout(tried, whose).await?;
            lockout.on_success();
            if self.directory.replace_lockout(tried, whose, &lockout, seen).await? == WriteOutcome::Applied {
                return Ok(());
            }
        }
    }
}

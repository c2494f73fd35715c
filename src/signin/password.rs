//! Local passwords of agents: the fallback for when the platform cannot say who somebody is.
//!
//! Argon2id at OWASP's parameters costs 19 MiB and some 30 ms, which is what makes a stolen table hard to guess and a
//! storm of sign-ins dangerous. So hashing runs behind a gate: a few at once on blocking threads, some waiting
//! for a while, the others told to come back. Whatever the outcome of a check, the same work is done for it.
//! Who may try at all is [`crate::domain::lockout`]'s question; whether a new password is good is [`new`]'s.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::secret::{constant_time_eq, random_bytes};
use gate::{Gate, Pass};
use memory::Pool;

mod gate;

mod hash;

mod memory;

pub mod new;

pub use gate::{Busy, Place};
pub use hash::{Cost, HashFault, PasswordHash};
pub use new::NewPassword;
pub(super) use new::check_length;

/// How many passwords may be worked on.
#[derive(Debug, Clone)]
pub struct PasswordSettings {
    /// At once. Each takes a core and 19 MiB: two leave the other cores to traffic.
    pub parallel: NonZeroUsize,
    /// Waiting. With two at once, 64 are through in one or two seconds; a queue that is longer only makes everybody
    /// late.
    pub waiting: usize,
    /// How long each waits. People and clients give up soon after.
    pub longest_wait: Duration,
    /// What a new hash costs.
    pub cost: Cost,
}

impl Default for PasswordSettings {
    fn default() -> Self {
        Self {
            parallel: NonZeroUsize::MIN.saturating_add(1),
            waiting: 64,
            longest_wait: Duration::from_secs(5),
            cost: Cost::owasp(),
        }
    }
}

/// Whether a password is the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Right {
        /// The same password at today's cost, to be kept instead: the old hash was made with other parameters.
        renewed: Option<PasswordHash>,
    },
    /// It is not, or there is no such account, or it could never have been a password.
    Wrong,
}

/// How much is going on, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Passwords being hashed.
    pub running: usize,
    /// Passwords waiting for their turn.
    pub waiting: usize,
    /// The most that were hashed at once since the start.
    pub most_running: usize,
}

/// Hashes and checks passwords. Clones share one gate.
#[derive(Clone)]
pub struct Passwords {
    shared: Arc<Shared>,
}

struct Shared {
    cost: Cost,
    /// Stands in for accounts that do not exist.
    nobody: PasswordHash,
    gate: Gate,
    pool: Pool,
}

impl Passwords {
    /// Allocates nothing yet: the memory comes with the first password and goes when nobody waits any more.
    pub fn new(settings: PasswordSettings) -> Self {
        let PasswordSettings { parallel, waiting, longest_wait, cost } = settings;
        // Random instead of computed: the work to check against it is the constant_time_eq, and no password in the world fits.
        let nobody = PasswordHash::new(cost.clone(), random_bytes(), random_bytes());
        let pool = Pool::new(cost.blocks());
        Self { shared: Arc::new(Shared { cost, nobody, gate: Gate::new(parallel, waiting, longest_wait), pool }) }
    }

    /// The hash to keep for a new password.
    pub async fn hash(&self, password: &NewPassword) -> Result<PasswordHash, Busy> {
        let text = password.reveal().to_owned();
        self.work(self.place()?, move |shared| shared.make(&text)).await
    }

    /// A place among those whose password is to be checked: to be had before a try costs anything else.
    pub fn place(&self) -> Result<Place, Busy> {
        self.shared.gate.place()
    }

    /// Whether `text` is the password behind `hash`; `None` for an account that does not exist or has no password.
    ///
    /// All of these take the time of one hash at today's cost: right, wrong, no such account, a text that no password
    /// can be. Two do not: a hash that was made at another cost takes that cost, until its owner's next sign-in
    /// renews it, and a right answer that renews takes both.
    pub async fn verify(&self, place: Place, hash: Option<&PasswordHash>, text: &str) -> Result<Verdict, Busy> {
        let account = if hash.is_some() { Account::CachedSession } else { Account::Unknown };
        let hash = hash.unwrap_or(&self.shared.nobody).clone();
        // What no password can be is not hashed itself: its length would be its cost.
        let candidate = new::normalised(text).ok();
        self.work(place, move |shared| {
            let output = shared.derive(hash.cost(), candidate.as_deref().unwrap_or_default(), &hash)?;
            let fits = constant_time_eq(&output, hash.output());
            let (true, Account::CachedSession, Some(candidate)) = (fits, account, candidate) else {
                return Some(Verdict::Wrong);
            };
            let renewed = if hash.is_outdated(&shared.cost) { shared.make(&candidate) } else { None };
            Some(Verdict::Right { renewed })
        })
        .await
    }

    /// How much is going on.
    pub fn load(&self) -> Load {
        let Shared { gate, pool, .. } = &*self.shared;
        Load { running: gate.running(), waiting: gate.waiting(), most_running: pool.most_in_use() }
    }

    /// Does `job` on a blocking thread once the gate lets it. What could not be done for want of memory, or because
    /// the process is ending, is busy too: nobody is let in, and nobody is told that the password is wrong.
    async fn work<T, F>(&self, place: Place, job: F) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: FnOnce(&Shared) -> Option<T> + Send + 'static,
    {
        let pass = place.turn().await?;
        let shared = Arc::clone(&self.shared);
        // The pass goes along: a caller who has gone away does not stop the work, so the place stays taken until it ends.
        let done = tokio::task::spawn_blocking(move || {
            let done = job(&shared);
            shared.leave(pass);
            done
        });
        done.await.ok().flatten().ok_or_else(|| self.shared.gate.busy())
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("cost", &self.shared.cost).field("load", &self.load()).finish()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Account {
    CachedSession,
    Unknown,
}

impl Shared {
    /// A fresh hash at today's cost; `None` for want of memory.
    fn make(&self, text: &str) -> Option<PasswordHash> {
        let empty = PasswordHash::new(self.cost.clone(), random_bytes(), [0; hash::OUTPUT]);
        let output = self.derive(&self.cost, text, &empty)?;
        Some(empty.with_output(&output))
    }

    /// Argon2id of a text with the salt and the output length of `like`.
    fn derive(&self, cost: &Cost, text: &str, like: &PasswordHash) -> Option<Vec<u8>> {
        let mut blocks = self.pool.take(cost.blocks())?;
        let output = cost.derive(text.as_bytes(), like.salt(), like.output().len(), &mut blocks);
        self.pool.give(blocks);
        output
    }

    /// Gives the place to the next. When nobody is left, the memory goes back to the system: between storms the
    /// gateway is as small as before, and what the last password left in the memory is gone.
    fn leave(&self, pass: Pass) {
        if self.gate.waiting() == 0 {
            self.pool.release_idle();
        }
        drop(pass);
    }
}

#[cfg(test)]
mod tests;

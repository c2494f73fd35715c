//! Local passwords of agents: the fallback for when the platform cannot identify them.
//!
//! Argon2id at OWASP's parameters costs 19 MiB and about 30 ms. That makes a stolen table hard to guess and a flood of
//! sign-ins dangerous, so hashing goes through a queue: a few hashes run at once on blocking threads, some wait, further
//! ones are rejected. Every check does the same work, whatever its result. [`crate::domain::lockout`] limits attempts per
//! account; [`new`] decides whether a new password is acceptable.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::secret::{constant_time_eq, random_bytes};
use memory::BlockPool;
use queue::{HashPermit, HashQueue};

mod hash;

mod memory;

pub mod new;

mod queue;

pub use hash::{Cost, HashFault, PasswordHash};
pub use new::NewPassword;
pub(super) use new::check_length;
pub use queue::{Busy, QueueSlot};

/// The limits of the password queue and the cost of a hash.
#[derive(Debug, Clone)]
pub struct PasswordSettings {
    /// Hashes that run at once. Each takes a core and 19 MiB: two leave the other cores to traffic.
    pub parallel: NonZeroUsize,
    /// Hashes that wait. With two at once, 64 take one or two seconds; a longer queue only makes everyone late.
    pub waiting: usize,
    /// How long a hash waits. Users and clients give up soon after.
    pub longest_wait: Duration,
    /// The cost of a new hash.
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

/// The result of a password check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordMatch {
    /// The password is right.
    Right {
        /// A hash at the current cost to store instead, if the old one has other parameters.
        rehashed: Option<PasswordHash>,
    },
    /// The password is wrong, the account has none, or the text could never be a password.
    Wrong,
}

/// The load of the queue, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashLoad {
    /// Hashes that run now.
    pub running: usize,
    /// Hashes that wait.
    pub waiting: usize,
    /// Most hashes that ran at once since the start.
    pub most_running: usize,
}

/// Hashes and checks passwords. Clones share one queue.
#[derive(Clone)]
pub struct Passwords {
    hasher: Arc<Hasher>,
}

struct Hasher {
    cost: Cost,
    /// Checked in place of the hash that an account does not have.
    dummy: PasswordHash,
    queue: HashQueue,
    pool: BlockPool,
}

impl Passwords {
    /// Allocates no hash memory yet: it comes with the first password and is freed when the queue is empty.
    pub fn new(settings: PasswordSettings) -> Self {
        let PasswordSettings { parallel, waiting, longest_wait, cost } = settings;
        // Random and not computed: checking against it takes the same work, and no password fits.
        let dummy = PasswordHash::new(cost.clone(), random_bytes(), random_bytes());
        let pool = BlockPool::new(cost.blocks());
        let queue = HashQueue::new(parallel, waiting, longest_wait);
        Self { hasher: Arc::new(Hasher { cost, dummy, queue, pool }) }
    }

    /// Hashes a new password.
    pub async fn hash(&self, password: &NewPassword) -> Result<PasswordHash, Busy> {
        let text = password.reveal().to_owned();
        self.run(self.reserve()?, move |hasher| hasher.hash(&text)).await
    }

    /// Reserves a slot in the queue, before the attempt costs anything else.
    pub fn reserve(&self) -> Result<QueueSlot, Busy> {
        self.hasher.queue.reserve()
    }

    /// Checks `text` against `hash`; `None` for an account that does not exist or has no password.
    ///
    /// Right, wrong, no account, and text that cannot be a password all take the time of one hash at the current cost.
    /// Two cases differ: a hash of another cost takes that cost until its owner's next sign-in rehashes it, and that
    /// sign-in takes both.
    pub async fn verify(
        &self,
        slot: QueueSlot,
        hash: Option<&PasswordHash>,
        text: &str,
    ) -> Result<PasswordMatch, Busy> {
        let source = if hash.is_some() { HashSource::Account } else { HashSource::Dummy };
        let hash = hash.unwrap_or(&self.hasher.dummy).clone();
        // Text that cannot be a password is replaced by an empty one: its length would add to the time.
        let candidate = new::normalised(text).ok();
        self.run(slot, move |hasher| {
            let output = hasher.derive(hash.cost(), candidate.as_deref().unwrap_or_default(), &hash)?;
            let equal = constant_time_eq(&output, hash.output());
            let (true, HashSource::Account, Some(candidate)) = (equal, source, candidate) else {
                return Some(PasswordMatch::Wrong);
            };
            let rehashed = if hash.is_outdated(&hasher.cost) { hasher.hash(&candidate) } else { None };
            Some(PasswordMatch::Right { rehashed })
        })
        .await
    }

    /// The load of the queue.
    pub fn load(&self) -> HashLoad {
        let Hasher { queue, pool, .. } = &*self.hasher;
        HashLoad { running: queue.running(), waiting: queue.waiting(), most_running: pool.most_in_use() }
    }

    /// Runs `job` on a blocking thread when its slot's turn comes. A job that fails for lack of memory, or because the
    /// process is ending, is reported as busy: the client must not be told that the password is wrong.
    async fn run<T, F>(&self, slot: QueueSlot, job: F) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: FnOnce(&Hasher) -> Option<T> + Send + 'static,
    {
        let permit = slot.wait().await?;
        let hasher = Arc::clone(&self.hasher);
        // The permit moves into the job: a cancelled caller does not stop the work, so the slot stays taken until it
        // ends.
        let done = tokio::task::spawn_blocking(move || {
            let done = job(&hasher);
            hasher.release(permit);
            done
        });
        done.await.ok().flatten().ok_or_else(|| self.hasher.queue.busy())
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("cost", &self.hasher.cost).field("load", &self.load()).finish()
    }
}

/// Which hash a password is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HashSource {
    Account,
    Dummy,
}

impl Hasher {
    /// A new hash at the current cost; `None` without memory.
    fn hash(&self, text: &str) -> Option<PasswordHash> {
        let empty = PasswordHash::new(self.cost.clone(), random_bytes(), [0; hash::OUTPUT]);
        let output = self.derive(&self.cost, text, &empty)?;
        Some(empty.with_output(&output))
    }

    /// Argon2id of a text, with the salt and the output length of `like`.
    fn derive(&self, cost: &Cost, text: &str, like: &PasswordHash) -> Option<Vec<u8>> {
        let mut blocks = self.pool.take(cost.blocks())?;
        let output = cost.derive(text.as_bytes(), like.salt(), like.output().len(), &mut blocks);
        self.pool.give(blocks);
        output
    }

    /// Releases a permit. If nothing waits, the hash memory is freed: it is needed only under load, and traces of the
    /// last password go with it.
    fn release(&self, permit: HashPermit) {
        if self.queue.waiting() == 0 {
            self.pool.release_idle();
        }
        drop(permit);
    }
}

#[cfg(test)]
mod tests;

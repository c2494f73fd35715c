//! Single-use claims in the memory of one gateway. A restart forgets them: what they protect expires within ten minutes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use super::bounded_table::BoundedTable;
use super::once::{ClaimKey, ClaimKind, ClaimOutcome, OnceStore};
use crate::domain::clock::Clock;
use crate::domain::write::WriteOutcome;

/// Most claims of a kind; more than users make within the lifetime of one.
fn capacity(kind: ClaimKind) -> usize {
    match kind {
        ClaimKind::BindProof => 10_000,
        ClaimKind::Callback => 20_000,
        ClaimKind::Code | ClaimKind::Flow => 100_000,
    }
}

type ClaimTables = HashMap<ClaimKind, BoundedTable<String>>;

/// The claims of one gateway, which expire by the monotonic clock.
pub struct InMemoryClaims {
    tables: Mutex<ClaimTables>,
    clock: Clock,
}

impl InMemoryClaims {
    /// Without claims.
    pub fn new(clock: Clock) -> Self {
        let tables = ClaimKind::ALL.into_iter().map(|kind| (kind, BoundedTable::new(capacity(kind))));
        Self { tables: Mutex::new(tables.collect()), clock }
    }

    /// Removes what has expired. Saves space only.
    pub fn sweep(&self) {
        let now = self.clock.running();
        self.lock().values_mut().for_each(|table| table.sweep(now));
    }

    fn lock(&self) -> MutexGuard<'_, ClaimTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the table of a kind at the current time.
    fn with<T>(&self, key: &ClaimKey, work: impl FnOnce(&mut BoundedTable<String>, Duration) -> T) -> T {
        let mut tables = self.lock();
        let table = tables.entry(key.kind).or_insert_with(|| BoundedTable::new(capacity(key.kind)));
        work(table, self.clock.running())
    }
}

#[async_trait]
impl OnceStore for InMemoryClaims {
    async fn claim(&self, key: &ClaimKey, value: &str, lifetime: Duration) -> Result<ClaimOutcome, StoreError> {
        Ok(self.with(key, |table, now| match table.get(&key.digest, now) {
            Some(first) => ClaimOutcome::Taken(first.clone()),
            None => {
                table.insert(key.digest.clone(), value.to_owned(), now + lifetime, key.network);
                ClaimOutcome::First
            }
        }))
    }

    async fn claimed(&self, key: &ClaimKey) -> Result<Option<String>, StoreError> {
        Ok(self.with(key, |table, now| table.get(&key.digest, now).cloned()))
    }

    async fn settle(
        &self,
        key: &ClaimKey,
        seen: &str,
        value: &str,
        lifetime: Duration,
    ) -> Result<WriteOutcome, StoreError> {
        Ok(self.with(key, |table, now| match table.get(&key.digest, now) {
            Some(current) if current == seen => {
                table.replace(&key.digest, value.to_owned(), now + lifetime);
                WriteOutcome::Applied
            }
            _ => WriteOutcome::Conflict,
        }))
    }

    async fn release(&self, key: &ClaimKey, seen: &str) -> Result<(), StoreError> {
        self.with(key, |table, now| {
            if table.get(&key.digest, now).is_some_and(|current| current == seen) {
                table.remove(&key.digest);
            }
        });
        Ok(())
    }

    async fn prove(&self, key: &ClaimKey) -> Result<(), StoreError> {
        self.with(key, |table, _| table.prove(&key.digest));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::domain::network::Network;
    use crate::domain::secret::Digest;

    #[test]
    fn a_full_table_of_used_proofs_locks_no_one_out() {
        let claims = InMemoryClaims::new(Clock::system());
        let claim = |name: &str| {
            let key = ClaimKey {
                kind: ClaimKind::BindProof,
                digest: Digest::of(&[name]),
                network: Network::of([192, 0, 2, 1].into()),
            };
            let outcome = claims.claim(&key, "", Duration::from_secs(60)).now_or_never().expect("no wait");
            outcome.expect("memory")
        };
        for number in 0..10_000 {
            assert_eq!(claim(&format!("flood {number}")), ClaimOutcome::First);
        }
        assert_eq!(claim("another member's"), ClaimOutcome::First);
        assert_eq!(claim("another member's"), ClaimOutcome::Taken(String::new()), "a proof works once");
        assert_eq!(claim("flood 9999"), ClaimOutcome::Taken(String::new()), "the newest stay");
        assert_eq!(claim("flood 0"), ClaimOutcome::First, "the oldest was forgotten");
    }
}

//! Leases of background work that one gateway at a time does for all of them.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;

/// Work that one gateway at a time does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// Asking the platform about employees again.
    Recheck,
    /// Removing old rows from the directory.
    Pruning,
    /// Comparing the sessions of the store with the directory.
    Reconciliation,
    /// Ending or shortening sessions with their signing keys.
    SessionsOfKeys,
}

impl Work {
    /// Its name in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Work::Recheck => "recheck",
            Work::Pruning => "pruning",
            Work::Reconciliation => "reconciliation",
            Work::SessionsOfKeys => "sessions_of_keys",
        }
    }
}

/// Whether this gateway has the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// This gateway does the work, until the lease ends.
    Granted,
    /// Another gateway does the work.
    HeldElsewhere,
}

/// Leases of work. A lease ends by itself, so the work of a gateway that died goes on elsewhere. It only saves work: a
/// gateway that was stopped for longer than its lease may overlap with the next holder, so the work must bear that.
#[async_trait]
pub trait WorkLeases: Send + Sync {
    /// Acquires the lease of this work for `lifetime`, or renews it if this gateway has it already.
    async fn acquire(&self, work: Work, lifetime: Duration) -> Result<LeaseOutcome, StoreError>;

    /// Ends the lease, if this gateway has it.
    async fn end(&self, work: Work) -> Result<(), StoreError>;
}

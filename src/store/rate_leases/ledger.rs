//! What gateways tell the ledger of a shared rate, and what it answers. The ledger is a script in Redis; tests compare it
//! with a model.

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::partition::Partition;
use crate::domain::rate::Window;
use crate::domain::secret::Digest;
use crate::store::StoreError;

/// The ledgers of all shared rates.
#[async_trait]
pub trait LeaseLedger: Send + Sync {
    /// Applies what a gateway tells, and answers it, in one atomic step. Fails within the store's timeout; it may have been
    /// applied all the same.
    async fn ask(&self, name: &LedgerName, ask: &LeaseAsk) -> Result<LeaseGrant, StoreError>;

    /// Takes back one charge of the entry with this number.
    async fn take_back(&self, name: &LedgerName, entry: u64) -> Result<(), StoreError>;
}

/// The name of a ledger: the same on all gateways, and no employee or address can be read from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerName {
    /// Where the ledger is.
    pub partition: Partition,
    /// The digest of rate and subject.
    pub digest: String,
}

/// The characters of a digest that make a name: 132 bits.
const NAME_LENGTH: usize = 22;

impl LedgerName {
    /// The ledger of what these parts identify. No secret is mixed in: gateways would count apart while it is changed, and the
    /// records of sessions in the same store name employees anyway.
    pub fn of(parts: &[&str]) -> Self {
        let mut digest = Digest::of(parts).as_str().to_owned();
        digest.truncate(NAME_LENGTH);
        Self { partition: Partition::of(&digest), digest }
    }
}

/// A gateway's state of one key, and what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseAsk {
    /// The record of this gateway: another one when the gateway has forgotten the key meanwhile.
    pub record: String,
    /// Counts the asks of the record. The ledger ignores one that a later one has overtaken.
    pub sequence: u64,
    /// The limit and its window.
    pub window: Window,
    /// How long the share may be used, from the moment at which it is granted.
    pub validity: Duration,
    /// The share that the gateway uses until it is answered.
    pub held: u32,
    /// The share that it needs for its requests.
    pub need: u32,
    /// The share that it would take. 0 gives the lease back.
    pub want: u32,
    /// Its admissions that count: how many, and for how long still, oldest first. Empty if they fit into `held`.
    pub admitted: Vec<(u32, Duration)>,
    /// Requests to count at once, beside all shares.
    pub charge: u32,
}

/// The ledger's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The share that the gateway may use from now on. If it is less than it held, the rest counts until it says that it
    /// uses no more.
    pub share: u32,
    /// How many of the requests were counted.
    pub charged: u32,
    /// The number of the entry that counts them.
    pub entry: u64,
    /// When one more request may be admitted, if none is given back before.
    pub retry_after: Duration,
    /// How many gateways take part.
    pub gateways: u32,
    /// When it was given: microseconds of the ledger's clock.
    pub at: u64,
}

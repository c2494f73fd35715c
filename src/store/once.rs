//! Single-use claims: what may happen once, on whichever gateway it is asked for first. A claim expires by itself.
//!
//! Keys are digests, because what is claimed (a code, a proof, a flow) is a credential. Values must be no secrets
//! either: the caller encrypts what must not be read in the store.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::network::Network;
use crate::domain::secret::Digest;
use crate::domain::write::WriteOutcome;

/// What is claimed. Each kind has its own keys and its own space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimKind {
    /// A bind proof that was used.
    BindProof,
    /// A callback and its result.
    Callback,
    /// An authorization code and the way in which it arrived.
    Code,
    /// A flow and the code that it was used with.
    Flow,
}

impl ClaimKind {
    /// Every kind.
    pub const ALL: [ClaimKind; 4] = [Self::BindProof, Self::Callback, Self::Code, Self::Flow];

    /// Its name in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimKind::BindProof => "proof",
            ClaimKind::Callback => "callback",
            ClaimKind::Code => "code",
            ClaimKind::Flow => "flow",
        }
    }
}

/// One thing to claim, and the network of the client that claims it: one network must not crowd out the claims of
/// others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimKey {
    /// What it is.
    pub kind: ClaimKind,
    /// The digest of the thing.
    pub digest: Digest,
    /// The client's network.
    pub network: Network,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The caller is the first.
    First,
    /// An earlier claim stands; this is its value.
    Taken(String),
}

/// Claims that the first caller wins, on all gateways that share the store. If the store is unavailable, a claim fails:
/// the caller must refuse.
///
/// Space is bounded. Where one network makes too many claims that nobody has proven, its own oldest are forgotten.
#[async_trait]
pub trait OnceStore: Send + Sync {
    /// Claims a key for `lifetime`, unless a claim stands. One atomic step: of concurrent callers one is the first, and
    /// the others learn its value.
    async fn claim(&self, key: &ClaimKey, value: &str, lifetime: Duration) -> Result<ClaimOutcome, StoreError>;

    /// The value of the claim that stands, if there is one.
    async fn claimed(&self, key: &ClaimKey) -> Result<Option<String>, StoreError>;

    /// Replaces the value of a claim that still has the value `seen`, and keeps it for `lifetime` from now on.
    async fn settle(
        &self,
        key: &ClaimKey,
        seen: &str,
        value: &str,
        lifetime: Duration,
    ) -> Result<WriteOutcome, StoreError>;

    /// Removes a claim that still has the value `seen`.
    async fn release(&self, key: &ClaimKey, seen: &str) -> Result<(), StoreError>;

    /// Keeps a claim longer than all that stand for nothing that the platform confirmed, should space run out.
    async fn prove(&self, key: &ClaimKey) -> Result<(), StoreError>;
}

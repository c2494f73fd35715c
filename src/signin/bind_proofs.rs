//! Bind proofs: signed cookies that let a member of a connected corporation bind an employee account, once.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::identity_provider::UnregisteredMember;
use crate::domain::clock::Clock;
use crate::domain::device::ClientDevice;
use crate::domain::link::PlatformAccount;
use crate::domain::network::Network;
use crate::domain::secret::{Digest, Secret, random_name};
use crate::error::{Error, Forbidden};
use crate::store::once::{ClaimKey, ClaimKind, ClaimOutcome, OnceStore};
use crate::token::cookie::{CookieKind, CookieSigner};

/// How long a used proof is remembered. Far longer than it is valid: a clock that is set back makes it valid again.
const USED_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The claims of a bind proof: a member of a connected corporation who has just signed in at the platform and is not
/// linked to an employee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindClaim {
    /// The member's account.
    pub account: PlatformAccount,
    /// The member's name; empty if the platform does not reveal it.
    pub name: String,
    /// The page that the member wanted to reach.
    pub home: String,
    /// Makes the proof unique, so that it binds only once.
    nonce: String,
}

/// Signs, verifies and uses up bind proofs.
pub(super) struct BindProofs {
    pub(super) cookies: Arc<CookieSigner>,
    pub(super) clock: Clock,
    pub(super) lifetime: Duration,
    pub(super) claims: Arc<dyn OnceStore>,
}

impl BindProofs {
    /// A proof for a member who wanted to reach `home`.
    pub(super) fn sign(&self, member: UnregisteredMember, home: &str) -> Secret<String> {
        let UnregisteredMember { account, name } = member;
        let end = self.clock.now().plus(self.lifetime);
        let claim = BindClaim { account, name, home: home.to_owned(), nonce: random_name(22) };
        Secret::new(self.cookies.sign(CookieKind::BindProof, end, &claim))
    }

    /// The claim of a proof that this gateway signed and that has not expired.
    pub(super) fn verify(&self, proof: &str) -> Option<BindClaim> {
        self.cookies.verify(CookieKind::BindProof, proof, self.lifetime, self.clock.now())
    }

    /// Uses a proof up; refuses one that was used before.
    pub(super) async fn use_up(&self, claim: &BindClaim, device: &ClientDevice) -> Result<(), Error> {
        let network = Network::of_text(&device.address);
        let key = ClaimKey { kind: ClaimKind::BindProof, digest: Digest::of(&[&claim.nonce]), network };
        match self.claims.claim(&key, "", USED_LIFETIME).await? {
            ClaimOutcome::First => Ok(()),
            ClaimOutcome::Taken(_) => Err(Forbidden::BindProof.into()),
        }
    }
}

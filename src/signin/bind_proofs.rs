//! Bind proofs: signed cookies that let a member of a connected corporation bind an employee account, once.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::identity_provider::UnregisteredMember;
use crate::domain::clock::Clock;
use crate::domain::link::PlatformAccount;
use crate::domain::secret::{Secret, random_name};
use crate::error::Forbidden;
use crate::token::cookie::{CookieKind, CookieSigner};

/// Most used proofs remembered; far more than users bind within a proof's lifetime.
const MAX_USED_PROOFS: usize = 10_000;

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
    pub(super) used: UsedProofs,
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
    pub(super) fn use_up(&self, claim: &BindClaim) -> Result<(), Forbidden> {
        if self.used.insert(&claim.nonce) { Ok(()) } else { Err(Forbidden::BindProof) }
    }
}

/// The nonces of the proofs that were used last. They are not forgotten when they expire: a clock that is set back would
/// make them valid again.
#[derive(Default)]
pub(super) struct UsedProofs {
    nonces: Mutex<UsedNonces>,
}

#[derive(Default)]
struct UsedNonces {
    known: HashSet<String>,
    /// Oldest first.
    order: VecDeque<String>,
}

impl UsedProofs {
    /// Adds a nonce. `false` if it is there already. A full set forgets the proof that was used first: its member could
    /// use it once more, and could as well get a new one by signing in again, while no one else is locked out.
    fn insert(&self, nonce: &str) -> bool {
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        if !nonces.known.insert(nonce.to_owned()) {
            return false;
        }
        nonces.order.push_back(nonce.to_owned());
        if nonces.order.len() > MAX_USED_PROOFS
            && let Some(first) = nonces.order.pop_front()
        {
            nonces.known.remove(&first);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_of_used_proofs_locks_no_one_out() {
        let used = UsedProofs::default();
        for number in 0..MAX_USED_PROOFS {
            assert!(used.insert(&format!("flood {number}")));
        }
        assert!(used.insert("another member's"));
        assert!(!used.insert("another member's"), "a proof works once");
        assert!(!used.insert("flood 9999"), "the newest stay");
        assert!(used.insert("flood 0"), "the oldest was forgotten");
    }
}

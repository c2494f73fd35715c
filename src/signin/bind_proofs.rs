//! Bind proofs: signed cookies that let a member of a connected corporation bind an employee account, once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::identity_provider::UnregisteredMember;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::link::PlatformAccount;
use crate::domain::secret::{Secret, random_name};
use crate::error::Forbidden;
use crate::token::cookie::{CookieKind, CookieSigner};

/// Most used proofs remembered; more than users bind within a proof's lifetime.
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
    /// When the proof expires.
    end: Timestamp,
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
        let claim = BindClaim { account, name, home: home.to_owned(), nonce: random_name(22), end };
        Secret::new(self.cookies.sign(CookieKind::BindProof, end, &claim))
    }

    /// The claim of a proof that this gateway signed and that has not expired.
    pub(super) fn verify(&self, proof: &str) -> Option<BindClaim> {
        self.cookies.verify(CookieKind::BindProof, proof, self.clock.now())
    }

    /// Uses a proof up; refuses one that was used before.
    pub(super) fn use_up(&self, claim: &BindClaim) -> Result<(), Forbidden> {
        let unused = self.used.insert(&claim.nonce, claim.end, self.clock.now());
        if unused { Ok(()) } else { Err(Forbidden::BindProof) }
    }

    /// Removes used proofs that have expired.
    pub(super) fn sweep(&self) {
        self.used.sweep(self.clock.now());
    }
}

/// The nonces of used proofs, until they expire.
#[derive(Default)]
pub(super) struct UsedProofs {
    until: Mutex<HashMap<String, Timestamp>>,
}

impl UsedProofs {
    /// Adds a nonce. `false` if it is there already. A full set forgets the proof that expires first: its member could
    /// use it once more, and could as well get a new one by signing in again, while no one else is locked out.
    fn insert(&self, nonce: &str, end: Timestamp, now: Timestamp) -> bool {
        self.sweep(now);
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.len() >= MAX_USED_PROOFS
            && let Some(first) = until.iter().min_by_key(|(_, end)| **end).map(|(nonce, _)| nonce.clone())
        {
            until.remove(&first);
        }
        until.insert(nonce.to_owned(), end).is_none()
    }

    fn sweep(&self, now: Timestamp) {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, end| now < *end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_of_used_proofs_locks_no_one_out() {
        let (used, now) = (UsedProofs::default(), Timestamp::from_seconds(1_000_000));
        let end = |number: usize| now.plus(Duration::from_secs(600) + Duration::from_millis(number as u64));
        for number in 0..MAX_USED_PROOFS {
            assert!(used.insert(&format!("flood {number}"), end(number), now));
        }
        assert!(used.insert("another member's", end(MAX_USED_PROOFS), now));
        assert!(!used.insert("another member's", end(MAX_USED_PROOFS), now), "a proof works once");
        assert!(!used.insert("flood 9999", end(9999), now), "the newest stay");
    }
}

//! The tokens that were used last, in front of the index of all tokens.
//!
//! In an index of a million tokens a lookup waits for main memory twice before it has the session. Hardly ever are more than some
//! thousands of tokens in use at the same time, and this table leads from them straight to their sessions. It is only a shortcut: what
//! it does not have, or has in an outdated version, is looked up in the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use super::cached::CachedSession;
use crate::token::fingerprint::TokenFingerprint;

/// Most places: a megabyte, which fits into the cache of a processor core.
const MAX_PLACES: usize = 1 << 16;

/// The sessions of recently used tokens.
pub(super) struct RecentTokens {
    /// Their number is a power of two.
    places: Box<[Place]>,
}

/// Where a token replaces the one before it.
#[derive(Default)]
struct Place {
    /// Some bits of the token. Only a hint, which saves reading another token's session: the session knows which token leads to it.
    hint: AtomicU64,
    session: ArcSwapOption<CachedSession>,
}

impl RecentTokens {
    /// For a cache of so many sessions.
    pub(super) fn new(capacity: usize) -> Self {
        let count = capacity.saturating_mul(2).clamp(1, MAX_PLACES).next_power_of_two();
        Self { places: (0..count).map(|_| Place::default()).collect() }
    }

    /// The session of a token, unless it is outdated.
    pub(super) fn get(&self, token: &TokenFingerprint) -> Option<Arc<CachedSession>> {
        let place = self.place(token)?;
        if place.hint.load(Ordering::Relaxed) != token.bits() {
            return None;
        }
        let session = place.session.load();
        let session = session.as_ref().filter(|session| session.token() == Some(token))?;
        if session.is_outdated() { None } else { Some(session.clone()) }
    }

    /// Adds the session of a token that was just used, if it is the session's first one. Hardly any session has another.
    pub(super) fn insert(&self, token: &TokenFingerprint, session: &Arc<CachedSession>) {
        if session.token() == Some(token)
            && let Some(place) = self.place(token)
        {
            place.session.store(Some(session.clone()));
            place.hint.store(token.bits(), Ordering::Relaxed);
        }
    }

    /// Removes a version of a session that was replaced or dropped.
    pub(super) fn remove(&self, token: &TokenFingerprint, session: &Arc<CachedSession>) {
        if let Some(place) = self.place(token) {
            place.session.compare_and_swap(&Some(session.clone()), None);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.iter().filter(|place| place.session.load().is_some()).count()
    }

    fn place(&self, token: &TokenFingerprint) -> Option<&Place> {
        // The lowest bits suffice, whatever the size of a pointer.
        self.places.get(token.bits() as usize & (self.places.len() - 1))
    }
}

#[cfg(test)]
mod tests;

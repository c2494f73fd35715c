//! The sessions that this gateway knows: a cache of identities in front of the store, never of verdicts.
//!
//! A known token costs one lookup and no lock. What keeps it honest is an order. Reading: an entry is
//! put down as pending *before* the store is asked. Ending: the store is changed *before* the entry
//! is looked for. So a read that saw the old record has its entry where the end will find it. An entry
//! that leaves the cache, for whatever reason, is retired: it is never filled again, and no token can
//! be hung on it.

use std::sync::Arc;
use std::time::Duration;

use papaya::HashMap;

use self::entry::{CacheEntry, TokenKey, TokenRef};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::{Session, SessionId};
use crate::error::{Error, TokenFault};
use crate::store::{Change, Store, StoreError};
use crate::token::Tokens;
use crate::token::claims::Claims;

mod cached;
mod change;
mod entry;

pub use cached::{CachedAssertion, CachedSession};
pub use change::SessionUpdate;

/// A live session's entry and its state.
type Found = (Arc<CacheEntry>, Arc<CachedSession>);

/// The sessions that this gateway knows, and the store behind them.
pub struct SessionCache {
    store: Arc<dyn Store>,
    by_id: HashMap<SessionId, Arc<CacheEntry>>,
    by_token: HashMap<TokenKey, Arc<CacheEntry>>,
    capacity: usize,
    token_lifetime: Duration,
}

impl SessionCache {
    /// A cache of at most `capacity` sessions. `token_lifetime` is how long an ended one is denied.
    pub fn new(store: Arc<dyn Store>, capacity: usize, token_lifetime: Duration) -> Self {
        Self { store, by_id: HashMap::new(), by_token: HashMap::new(), capacity, token_lifetime }
    }

    /// The store behind.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The state behind a token that was found good before. No lock, no store.
    pub fn known(&self, token: &str, now: Timestamp) -> Option<Arc<CachedSession>> {
        let by_token = self.by_token.pin();
        let live = by_token.get(&TokenRef(token))?;
        let known = live.state(now)?;
        live.touch(now);
        Some(known)
    }

    /// The live session behind a token: from memory, or after its signature was checked from the store.
    pub async fn of_token(&self, tokens: &Tokens, token: &str, now: Timestamp) -> Result<Arc<CachedSession>, Error> {
        if let Some(known) = self.known(token, now) {
            return Ok(known);
        }
        let claims = tokens.verify(token, now).map_err(Error::InvalidToken)?;
        self.of_claims(&claims, token, now).await
    }

    /// The live session that the claims of a good token name.
    pub async fn of_claims(&self, claims: &Claims, token: &str, now: Timestamp) -> Result<Arc<CachedSession>, Error> {
        let found = self.find(claims.session_id(), now).await?;
        // The record must be of the person whom the token names: a store that mixes up answers lets nobody in.
        let fits = found.filter(|(_, known)| claims.matches(&known.session));
        let (live, known) = fits.ok_or(Error::InvalidToken(TokenFault::Revoked))?;
        self.remember(token, &live);
        live.touch(now);
        Ok(known)
    }

    /// The state of a session, from memory or from the store.
    pub async fn session(&self, id: &SessionId, now: Timestamp) -> Result<Option<Arc<CachedSession>>, StoreError> {
        Ok(self.find(id, now).await?.map(|(_, known)| known))
    }

    /// Remembers that a token, its signature checked, is of this session.
    fn remember(&self, token: &str, live: &Arc<CacheEntry>) {
        live.attach_token(TokenKey::new(token), |key| {
            self.by_token.pin().insert(key, live.clone());
        });
        // Retired while it was put down: whoever did it may have looked before the token was there.
        if live.is_over() {
            self.drop_tokens(live);
        }
    }

    /// The entry and the state of a live session.
    async fn find(&self, id: &SessionId, now: Timestamp) -> Result<Option<Found>, StoreError> {
        if let Some(live) = self.by_id.pin().get(id)
            && let Some(known) = live.state(now)
        {
            return Ok(Some((live.clone(), known)));
        }
        if self.by_id.len() >= self.capacity {
            self.make_room();
        }
        let live = self.by_id.pin().get_or_insert_with(id.clone(), Arc::default).clone();
        // On an error the entry stays, still pending: somebody else may be reading into it.
        let Some(session) = self.store.find(id).await? else {
            // Whoever read the record just before it went must not bring it back.
            self.retire(id, &live);
            return Ok(None);
        };
        live.update(session.clone());
        // An entry that was retired meanwhile keeps nothing; what was just read counts for this request.
        let known = live.state(now).unwrap_or_else(|| Arc::new(CachedSession::new(session)));
        Ok((!known.session.is_expired(now)).then_some((live, known)))
    }

    /// The live sessions of an employee, newest first, each with when it was last used.
    pub async fn of_employee(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
    ) -> Result<Vec<(Session, Timestamp)>, StoreError> {
        let sessions = self.store.of_employee(corp_id, employee_id).await?;
        let ids: Vec<SessionId> = sessions.iter().map(|session| session.id.clone()).collect();
        let noted = self.store.last_seen(&ids).await?;
        let here = self.by_id.pin();
        let seen = sessions.into_iter().zip(noted).map(|(session, noted)| {
            let here = here.get(&session.id).map(|live| live.seen());
            let last = here.into_iter().chain(noted).fold(session.issued_at, Timestamp::max);
            (session, last)
        });
        Ok(seen.collect())
    }

    /// Tells the store which sessions were used since it was last told.
    pub async fn note_seen(&self) -> Result<(), StoreError> {
        let news: Vec<(SessionId, Timestamp)> =
            self.by_id.pin().iter().filter_map(|(id, live)| Some((id.clone(), live.seen_news()?))).collect();
        self.store.note_seen(&news).await
    }

    /// Takes in a change that was made here or elsewhere.
    pub fn apply_change(&self, change: &Change) {
        match change {
            Change::SessionEnded { id, .. } => self.ended(id),
            Change::SessionChanged(session) => self.changed(session),
            Change::TicketMoved(_) => {}
        }
    }

    /// Forgets everything, so that it is read again: for when changes may have been missed.
    pub fn forget_all(&self) {
        for (id, live) in &self.by_id.pin() {
            self.retire(id, live);
        }
    }

    /// Gives back the memory of sessions that are over, and of entries that a failing store left pending.
    pub fn sweep(&self, now: Timestamp) {
        for (id, live) in &self.by_id.pin() {
            if live.is_idle(now) {
                self.retire(id, live);
            }
        }
    }

    fn ended(&self, id: &SessionId) {
        let found = self.by_id.pin().get(id).cloned();
        if let Some(live) = found {
            self.retire(id, &live);
        }
    }

    fn changed(&self, session: &Session) {
        if let Some(live) = self.by_id.pin().get(&session.id) {
            live.update(session.clone());
        }
    }

    /// Takes an entry out of use for good, whether its session is over or only its place is needed: whoever
    /// still holds it can neither fill it nor attach_token a token on it, and the next look asks the store.
    fn retire(&self, id: &SessionId, live: &Arc<CacheEntry>) {
        live.end();
        let _ = self.by_id.pin().remove_if(id, |_, present| Arc::ptr_eq(present, live));
        self.drop_tokens(live);
    }

    fn drop_tokens(&self, live: &CacheEntry) {
        let by_token = self.by_token.pin();
        for token in live.take_tokens() {
            by_token.remove(&token);
        }
    }

    /// Drops an arbitrary sixteenth. Entries that still wait for the store stay: an end must find them.
    fn make_room(&self) {
        let enough = self.capacity / 16 + 1;
        let by_id = self.by_id.pin();
        let settled = by_id.iter().filter(|(_, live)| live.is_settled()).take(enough);
        for (id, live) in settled {
            self.retire(id, live);
        }
    }
}

#[cfg(test)]
mod tests;

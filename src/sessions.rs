//! The session cache in front of the store, and every change to a session. It caches identities, never decisions.
//!
//! A cached token costs one lookup or two, and no lock. With a shared store it is used only while the change feed is current.
//! Otherwise the store is asked; while it cannot answer, a known session goes on for `store.outage_grace`.
//!
//! Consistency depends on the order of writes. A read inserts a pending
//! entry *before* it queries the store; a revocation writes to the store *before* it looks for the entry. So the
//! revocation always finds the entry of a read that saw the old record. An entry that leaves the cache, for whatever
//! reason, is retired: it is never filled again, and no token can be attached to it. Tokens lead to the newest version of their
//! session. A lookup that began earlier may still reach one that was replaced or dropped: that version is marked as outdated.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use papaya::HashMap;

use self::entry::{CacheEntry, KnownToken};
use self::eviction::EvictionQueue;
use self::outage::RecentOutage;
use self::recent::RecentTokens;
use self::shared_names::SharedNames;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::partition::Partition;
use crate::domain::ready_hash::BuildReadyHash;
use crate::domain::session::{Session, SessionId};
use crate::error::{Error, Part, TokenFault};
use crate::store::feed_state::FeedTrust;
use crate::store::{Change, Store, StoreError};
use crate::token::Tokens;
use crate::token::claims::Claims;
use crate::token::fingerprint::{Fingerprinter, TokenFingerprint};

mod batch;
mod cached;
mod change;
mod entry;
mod eviction;
mod outage;
mod recent;
mod reconcile;
mod shared_names;

pub use cached::{AssertionUse, CachedAssertion, CachedSession};
pub use change::SessionUpdate;
pub use reconcile::{Reconcile, StoreDistrust};

/// A cache entry and the session that it holds.
type FoundEntry = (Arc<CacheEntry>, Arc<CachedSession>);

/// What the cache has of a session.
enum CacheLookup {
    /// A session that is used as it is.
    Usable(FoundEntry),
    /// The entry of a session that is used only if the store cannot answer.
    Fallback(Arc<CacheEntry>),
    Absent,
}

/// A bounded cache of sessions, by id and by token, in front of the store.
pub struct SessionCache {
    store: Arc<dyn Store>,
    by_id: HashMap<SessionId, Arc<CacheEntry>>,
    /// Leads to the session itself, because following one more pointer would cost every request a cache miss.
    by_token: HashMap<TokenFingerprint, Arc<CachedSession>, BuildReadyHash>,
    recent: RecentTokens,
    fingerprinter: Fingerprinter,
    names: SharedNames,
    capacity: usize,
    eviction: EvictionQueue,
    token_lifetime: Duration,
    outage: RecentOutage,
    /// Set after a start, until every stored session was compared with the directory.
    reconciler: ArcSwapOption<Box<dyn Reconcile>>,
    leeway: Duration,
}

/// How many entries a task visits before it yields to requests: about a millisecond if none is in the processor's caches.
const ENTRIES_PER_TURN: usize = 1024;

impl SessionCache {
    /// Creates a cache of at most `capacity` sessions. A revoked session is denied for `token_lifetime`. One that begins
    /// more than `leeway` in the future is refused, as its token is when it is verified.
    pub fn new(store: Arc<dyn Store>, capacity: usize, token_lifetime: Duration, leeway: Duration) -> Self {
        Self {
            store,
            by_id: HashMap::new(),
            by_token: HashMap::with_hasher(BuildReadyHash::default()),
            recent: RecentTokens::new(capacity),
            fingerprinter: Fingerprinter::new(),
            names: SharedNames::default(),
            capacity,
            eviction: EvictionQueue::default(),
            token_lifetime,
            outage: RecentOutage::default(),
            reconciler: ArcSwapOption::empty(),
            leeway,
        }
    }

    /// The store behind the cache.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The session of a token that was verified before, if the change feed is current. Takes no lock and
    /// does not query the store.
    pub fn cached(&self, token: impl AsRef<[u8]>, now: Timestamp) -> Option<Arc<CachedSession>> {
        if self.store.feed().trust() != FeedTrust::Current {
            return None;
        }
        let token = self.fingerprinter.fingerprint(token)?;
        let recent = self.recent.get(&token);
        let is_recent = recent.is_some();
        let cached = recent.or_else(|| self.by_token.pin().get(&token).cloned())?;
        if cached.is_outdated() || !cached.is_valid(now, self.leeway) {
            return None;
        }
        // Once in a while, so that two tokens in one place do not replace each other with every request.
        if cached.touch(now) && !is_recent {
            self.recent.insert(&token, &cached);
            // A change may have looked for it there just before.
            if cached.is_outdated() {
                self.recent.remove(&token, &cached);
            }
        }
        Some(cached)
    }

    /// The session of a token: cached, or read from the store once the signature is verified.
    pub async fn of_token(&self, tokens: &Tokens, token: &str, now: Timestamp) -> Result<Arc<CachedSession>, Error> {
        if let Some(cached) = self.cached(token, now) {
            return Ok(cached);
        }
        let claims = self.verify(tokens, token, now).map_err(|fault| tokens.refusal(fault))?;
        self.of_claims(&claims, token, now).await
    }

    /// Verifies a token that is not cached. If a cached token has the same header and payload, and its key makes only one
    /// signature of them, any other signature is refused unchecked. A client can alter the signature of its own token in any
    /// number of ways, and checking one takes several times as long as the rest of a refusal.
    pub fn verify(&self, tokens: &Tokens, token: &str, now: Timestamp) -> Result<Claims, TokenFault> {
        let unverified = tokens.read(token, now)?;
        if unverified
            .signed_once()
            .is_some_and(|signed| self.differs_in_signature(unverified.session_id(), signed, token))
        {
            return Err(unverified.reject());
        }
        unverified.verify()
    }

    /// Whether a token of this session is cached with the same header and payload, and another signature.
    fn differs_in_signature(&self, id: &SessionId, signed: &str, token: &str) -> bool {
        let by_id = self.by_id.pin();
        let Some(entry) = by_id.get(id) else { return false };
        self.known_token(token, signed).is_some_and(|token| entry.has_other_signature(token))
    }

    fn known_token(&self, token: &str, signed: &str) -> Option<KnownToken> {
        let fingerprint = |text: &str| self.fingerprinter.fingerprint(text);
        Some(KnownToken { whole: fingerprint(token)?, signed: fingerprint(signed)? })
    }

    /// The session that the claims of a verified token name.
    pub async fn of_claims(&self, claims: &Claims, token: &str, now: Timestamp) -> Result<Arc<CachedSession>, Error> {
        let found = self.find(claims.session_id(), now).await?;
        // The record must belong to the employee that the token names, in case the store returns a wrong record.
        let matching = found.filter(|(_, cached)| claims.matches(&cached.session));
        let (entry, cached) = matching.ok_or(Error::InvalidToken(TokenFault::Revoked))?;
        self.index_token(token, &entry);
        cached.touch(now);
        Ok(cached)
    }

    /// The session with this id, cached or read from the store.
    pub async fn session(&self, id: &SessionId, now: Timestamp) -> Result<Option<Arc<CachedSession>>, Error> {
        Ok(self.find(id, now).await?.map(|(_, cached)| cached))
    }

    /// Refuses a session that the store does not have. Reads the store, because the cache learns of another
    /// gateway's revocation a moment later.
    pub async fn check_live(&self, id: &SessionId) -> Result<(), Error> {
        self.store.find(id).await?.map(|_| ()).ok_or(Error::InvalidToken(TokenFault::Revoked))
    }

    /// Indexes the session of an entry by a token whose signature was verified.
    fn index_token(&self, token: &str, entry: &Arc<CacheEntry>) {
        let signed = token.rsplit_once('.').map_or(token, |(signed, _)| signed);
        let Some(token) = self.known_token(token, signed) else { return };
        entry.attach_token(token, |session| {
            self.by_token.pin().insert(token.whole, session);
        });
    }

    /// Stores a record in its entry, and leads the tokens of the session to it.
    fn update(&self, entry: &CacheEntry, newer: &Arc<CachedSession>) {
        entry.update(newer, |token, replaced| {
            self.by_token.pin().insert(token, newer.clone());
            self.recent.remove(&token, replaced);
        });
    }

    /// Finds a session in the cache or the store, and its cache entry.
    async fn find(&self, id: &SessionId, now: Timestamp) -> Result<Option<FoundEntry>, Error> {
        let known = match self.look_up(id, now) {
            CacheLookup::Usable(found) => return Ok(Some(found)),
            CacheLookup::Fallback(entry) => Some(entry),
            CacheLookup::Absent => None,
        };
        let entry = self.pending_entry(id, now);
        // On an error the entry stays as it is: another request may be reading into it.
        let read = match self.read(id).await {
            Err(error @ Error::Unavailable { part: Part::Store, .. }) => {
                // The session may have changed or ended while the store was asked.
                let known = known.and_then(|entry| Some((entry.live_session(now, self.leeway)?, entry)));
                let (cached, entry) = known.ok_or(error)?;
                self.outage.note();
                return Ok(Some((entry, cached)));
            }
            read => read?,
        };
        Ok(self.fill(id, entry, read, now))
    }

    /// What the cache has of a session.
    fn look_up(&self, id: &SessionId, now: Timestamp) -> CacheLookup {
        let known = self.by_id.pin().get(id).and_then(|entry| {
            let cached = entry.live_session(now, self.leeway)?;
            Some((entry.clone(), cached))
        });
        match (known, self.store.feed().trust()) {
            (Some(known), FeedTrust::Current) => CacheLookup::Usable(known),
            (Some(known), FeedTrust::Stale) if self.outage.is_recent() => CacheLookup::Usable(known),
            (Some((entry, _)), FeedTrust::Stale) => CacheLookup::Fallback(entry),
            (Some(_), FeedTrust::Lost) | (None, _) => CacheLookup::Absent,
        }
    }

    /// Stores what was read of a session in its pending entry.
    fn fill(
        &self,
        id: &SessionId,
        entry: Arc<CacheEntry>,
        read: Option<Session>,
        now: Timestamp,
    ) -> Option<FoundEntry> {
        let Some(mut session) = read else {
            // A request that read the record just before it was removed must not bring it back.
            self.retire(id, &entry);
            return None;
        };
        self.names.share(&mut session);
        if session.id == *id {
            // The key of `by_id`, unless another request inserted the entry.
            session.id = id.clone();
        }
        let read = Arc::new(CachedSession::new(session));
        self.update(&entry, &read);
        // An entry that was retired meanwhile stays empty; this request uses the record that it has read.
        let cached = entry.live_session(now, self.leeway).unwrap_or(read);
        cached.is_valid(now, self.leeway).then_some((entry, cached))
    }

    /// The entry of a session that is about to be read. A new one takes the place of another if the cache is full.
    fn pending_entry(&self, id: &SessionId, now: Timestamp) -> Arc<CacheEntry> {
        let new: Arc<CacheEntry> = Arc::default();
        let entry = self.by_id.pin().get_or_insert(id.clone(), new.clone()).clone();
        if Arc::ptr_eq(&entry, &new) {
            self.eviction.push(&entry, self.by_id.len());
            self.evict(now);
        }
        entry
    }

    /// Evicts what exceeds the capacity: one entry, or two until entries that could not be evicted are made up for.
    fn evict(&self, now: Timestamp) {
        for _ in 0..2 {
            if self.by_id.len() <= self.capacity {
                return;
            }
            if let Some(entry) = self.eviction.pop(now)
                && let Some(id) = entry.session_id()
            {
                self.retire(&id, &entry);
            }
        }
    }

    /// The live sessions of an employee, newest first, each with the time of its last use.
    pub async fn of_employee(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
    ) -> Result<Vec<(Session, Timestamp)>, StoreError> {
        let sessions = self.store.of_employee(corp_id, employee_id).await?;
        let ids: Vec<SessionId> = sessions.iter().map(|session| session.id.clone()).collect();
        let stored = self.store.last_seen(&ids).await?;
        let by_id = self.by_id.pin();
        let seen = sessions.into_iter().zip(stored).map(|(session, stored)| {
            let local = by_id.get(&session.id).and_then(|entry| entry.last_seen());
            let last = local.into_iter().chain(stored).fold(session.issued_at, Timestamp::max);
            (session, last)
        });
        Ok(seen.collect())
    }

    /// Writes the last-seen times that changed since the previous call to the store.
    pub async fn note_seen(&self) -> Result<(), StoreError> {
        let (mut entries, mut unsaved): (Vec<Arc<CacheEntry>>, Vec<(SessionId, Timestamp)>) = Default::default();
        self.visit_entries(|id, entry| {
            if let Some(seen) = entry.unsaved_last_seen() {
                entries.push(entry.clone());
                unsaved.push((id.clone(), seen));
            }
        })
        .await;
        self.store.note_seen(&unsaved).await?;
        for (entry, (_, seen)) in entries.iter().zip(&unsaved) {
            entry.set_saved_last_seen(*seen);
        }
        Ok(())
    }

    /// Applies a change of the change feed, made by this gateway or another.
    pub fn apply_change(&self, change: &Change) {
        match change {
            Change::SessionEnded { id, .. } => self.remove(id),
            Change::SessionChanged(session) => self.replace_cached(session),
            Change::Missed(partition) => self.forget(*partition),
            Change::PrimaryChanged => self.forget_all(),
            Change::TicketMoved(_) | Change::CaughtUp | Change::Unconfirmed => {}
        }
    }

    /// Retires the entries of a partition, so that its sessions are read again.
    fn forget(&self, partition: Partition) {
        for (id, entry) in &self.by_id.pin() {
            if Partition::of(id.as_str()) == partition {
                self.retire(id, entry);
            }
        }
    }

    /// Retires every entry, so that sessions are read again; for when changes may have been missed.
    pub fn forget_all(&self) {
        for (id, entry) in &self.by_id.pin() {
            self.retire(id, entry);
        }
    }

    /// Frees expired sessions, entries that a failing store left pending, and encoded headers except for fresh assertions.
    pub async fn sweep(&self, now: Timestamp) {
        self.visit_entries(|id, entry| {
            if entry.is_removable(now) {
                self.retire(id, entry);
            } else {
                entry.drop_encoded(now);
            }
        })
        .await;
    }

    /// Visits all entries and yields to requests now and then.
    async fn visit_entries(&self, mut visit: impl FnMut(&SessionId, &Arc<CacheEntry>)) {
        let by_id = self.by_id.pin_owned();
        for (number, (id, entry)) in by_id.iter().enumerate() {
            visit(id, entry);
            if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn remove(&self, id: &SessionId) {
        let found = self.by_id.pin().get(id).cloned();
        if let Some(entry) = found {
            self.retire(id, &entry);
        }
    }

    fn replace_cached(&self, session: &Session) {
        let found = self.by_id.pin().get_key_value(&session.id).map(|(id, entry)| (id.clone(), entry.clone()));
        let Some((id, entry)) = found else { return };
        if entry.is_filled() || self.trusts_store() {
            let mut session = Session { id, ..session.clone() };
            self.names.share(&mut session);
            self.update(&entry, &Arc::new(CachedSession::new(session)));
        } else {
            // The record was not compared yet: the next request reads it again.
            self.retire(&session.id, &entry);
        }
    }

    /// Retires an entry for good, whether its session ended or it is evicted: tasks that still hold it can neither fill
    /// it nor attach a token to it, and the next lookup queries the store.
    fn retire(&self, id: &SessionId, entry: &Arc<CacheEntry>) {
        entry.retire(|token, session| {
            // The token may lead to a newer entry's session already.
            let _ = self.by_token.pin().remove_if(&token, |_, present| Arc::ptr_eq(present, session));
            self.recent.remove(&token, session);
        });
        let _ = self.by_id.pin().remove_if(id, |_, present| Arc::ptr_eq(present, entry));
    }
}

#[cfg(test)]
mod tests;

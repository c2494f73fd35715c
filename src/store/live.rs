//! The sessions that this gateway knows: a cache of identities in front of the store, never of verdicts.
//!
//! A known token costs one lookup and no lock. What keeps it honest is an order. Reading: an entry is
//! put down as pending *before* the store is asked. Ending: the store is changed *before* the entry
//! is looked for. So a read that saw the old record has its entry where the end will find it. An entry
//! that leaves the cache, for whatever reason, is retired: it is never filled again, and no token can
//! be hung on it.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::HeaderValue;
use papaya::{Equivalent, HashMap};

use super::{Change, Outcome, Store, StoreError};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::identity::{self, IdentityLines};
use crate::domain::role::{self, RoleName};
use crate::domain::session::{EndCause, Session, SessionId, Stage};
use crate::error::{Error, TokenFault};
use crate::token::Tokens;
use crate::token::claims::Claims;

/// Most token strings remembered for one session. A session has one; ES256 gives a new string each
/// time the same one is minted.
const TOKENS_PER_SESSION: usize = 4;

/// A session's state at one version, with everything that requests need of it ready-made.
#[derive(Debug)]
pub struct Known {
    /// The record.
    pub session: Session,
    /// Its identity headers.
    pub lines: IdentityLines,
    /// The assertion that was made last, and behind it those for other upstreams.
    assertions: ArcSwapOption<Assertion>,
}

/// The gateway's signed word to one upstream about a session, as it is sent again and again.
#[derive(Debug)]
pub struct Assertion {
    /// As a header's value.
    pub value: HeaderValue,
    /// All identity headers as a piece of an HTTP/1.1 head, this one among them: in one place, because with
    /// many sessions what costs is the way to memory.
    pub block: Bytes,
    upstream: Arc<str>,
    fresh_until: Timestamp,
    next: Option<Arc<Assertion>>,
}

impl Assertion {
    fn new(lines: &IdentityLines, signed: &str, upstream: &Arc<str>, fresh_until: Timestamp) -> Option<Self> {
        let name = identity::ASSERTION;
        let start = lines.block().len() + name.as_str().len() + 2;
        let pieces = [lines.block(), name.as_str().as_bytes(), b": ", signed.as_bytes(), b"\r\n"];
        let block = Bytes::from(pieces.concat());
        let value = HeaderValue::from_maybe_shared(block.slice(start..start + signed.len())).ok()?;
        Some(Self { value, block, upstream: upstream.clone(), fresh_until, next: None })
    }

    fn behind(&self, next: Option<Arc<Assertion>>) -> Arc<Self> {
        Arc::new(Self {
            value: self.value.clone(),
            block: self.block.clone(),
            upstream: self.upstream.clone(),
            fresh_until: self.fresh_until,
            next,
        })
    }
}

impl Known {
    fn new(session: Session) -> Self {
        Self { lines: IdentityLines::of(&session), session, assertions: ArcSwapOption::empty() }
    }

    /// The assertion for an upstream, signed anew when there is no fresh one.
    pub fn assertion(
        &self,
        upstream: &Arc<str>,
        now: Timestamp,
        fresh: Duration,
        sign: impl FnOnce() -> String,
    ) -> Option<Arc<Assertion>> {
        let made = self.assertions.load_full();
        let all = || std::iter::successors(made.as_ref(), |one| one.next.as_ref());
        if let Some(found) = all().find(|one| one.upstream == *upstream && now < one.fresh_until) {
            return Some(found.clone());
        }
        let others = all()
            .filter(|one| one.upstream != *upstream && now < one.fresh_until)
            .fold(None, |next, one| Some(one.behind(next)));
        let signed = Assertion::new(&self.lines, &sign(), upstream, now.plus(fresh))?;
        let latest = Arc::new(Assertion { next: others, ..signed });
        // Two requests may both make one; either is good.
        self.assertions.store(Some(latest.clone()));
        Some(latest)
    }
}

/// One session in memory.
#[derive(Debug, Default)]
pub struct LiveSession {
    /// Nothing until the store has answered, and nothing again once it is over.
    known: ArcSwapOption<Known>,
    ended: AtomicBool,
    /// When it was last used here, in milliseconds; 0 if it was not.
    seen: AtomicI64,
    /// The same, as far as the store has been told.
    noted: AtomicI64,
    tokens: Mutex<Vec<TokenKey>>,
}

/// How exactly it is known when a session was last used. Coarse, so that cores do not fight for the place where
/// it is written down.
const SEEN_EVERY: i64 = 5_000;

/// How far the store's note may fall behind.
const NOTED_EVERY: i64 = 60_000;

impl LiveSession {
    /// The state now; nothing if the session is over, by revocation or by the clock.
    pub fn state(&self, now: Timestamp) -> Option<Arc<Known>> {
        let known = self.known.load_full()?;
        if self.ended.load(Ordering::Acquire) || known.session.is_expired(now) { None } else { Some(known) }
    }

    /// Takes a record over unless a newer one is there or the session has ended meanwhile.
    fn learn(&self, session: Session) {
        let fresh = Arc::new(Known::new(session));
        self.known.rcu(|current| match current {
            Some(known) if known.session.version >= fresh.session.version => Some(known.clone()),
            _ => Some(fresh.clone()),
        });
        if self.ended.load(Ordering::Acquire) {
            self.known.store(None);
        }
    }

    fn touch(&self, now: Timestamp) {
        if now.millis().saturating_sub(self.seen.load(Ordering::Relaxed)) >= SEEN_EVERY {
            self.seen.store(now.millis(), Ordering::Relaxed);
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.known.store(None);
    }
}

/// A whole token as a key. Only its end is hashed: it is part of a signature, which nobody can
/// choose, and keys are only ever put in after that signature was found good.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TokenKey(Arc<str>);

#[derive(PartialEq, Eq)]
struct TokenRef<'a>(&'a str);

fn hash_end<H: Hasher>(token: &str, state: &mut H) {
    let bytes = token.as_bytes();
    state.write(&bytes[bytes.len().saturating_sub(24)..]);
}

impl Hash for TokenKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_end(&self.0, state);
    }
}

impl Hash for TokenRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_end(self.0, state);
    }
}

impl Equivalent<TokenKey> for TokenRef<'_> {
    fn equivalent(&self, key: &TokenKey) -> bool {
        self.0 == &*key.0
    }
}

/// A live session's entry and its state.
type Found = (Arc<LiveSession>, Arc<Known>);

/// What became of a change to a session.
#[derive(Debug)]
pub enum Switched {
    /// It was made.
    Done(Arc<Known>),
    /// The session is over.
    Gone,
    /// The session does not hold the role.
    NotHeld,
}

/// The sessions that this gateway knows, and the store behind them.
pub struct Live {
    store: Arc<dyn Store>,
    by_id: HashMap<SessionId, Arc<LiveSession>>,
    by_token: HashMap<TokenKey, Arc<LiveSession>>,
    capacity: usize,
    token_lifetime: Duration,
}

impl Live {
    /// A cache of at most `capacity` sessions. `token_lifetime` is how long an ended one is denied.
    pub fn new(store: Arc<dyn Store>, capacity: usize, token_lifetime: Duration) -> Self {
        Self { store, by_id: HashMap::new(), by_token: HashMap::new(), capacity, token_lifetime }
    }

    /// The store behind.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The state behind a token that was found good before. No lock, no store.
    pub fn known(&self, token: &str, now: Timestamp) -> Option<Arc<Known>> {
        let by_token = self.by_token.pin();
        let live = by_token.get(&TokenRef(token))?;
        let known = live.state(now)?;
        live.touch(now);
        Some(known)
    }

    /// The live session behind a token: from memory, or after its signature was checked from the store.
    pub async fn of_token(&self, tokens: &Tokens, token: &str, now: Timestamp) -> Result<Arc<Known>, Error> {
        if let Some(known) = self.known(token, now) {
            return Ok(known);
        }
        let claims = tokens.read(token, now).map_err(Error::InvalidToken)?;
        self.of_claims(&claims, token, now).await
    }

    /// The live session that the claims of a good token name.
    pub async fn of_claims(&self, claims: &Claims, token: &str, now: Timestamp) -> Result<Arc<Known>, Error> {
        let found = self.find(claims.session_id(), now).await?;
        // The record must be of the person whom the token names: a store that mixes up answers lets nobody in.
        let fits = found.filter(|(_, known)| claims.names(&known.session));
        let (live, known) = fits.ok_or(Error::InvalidToken(TokenFault::Revoked))?;
        self.remember(token, &live);
        live.touch(now);
        Ok(known)
    }

    /// The state of a session, from memory or from the store.
    pub async fn session(&self, id: &SessionId, now: Timestamp) -> Result<Option<Arc<Known>>, StoreError> {
        Ok(self.find(id, now).await?.map(|(_, known)| known))
    }

    /// Remembers that a token, its signature checked, is of this session.
    fn remember(&self, token: &str, live: &Arc<LiveSession>) {
        let key = TokenKey(Arc::from(token));
        {
            let mut tokens = live.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            if tokens.len() < TOKENS_PER_SESSION && !tokens.contains(&key) {
                tokens.push(key.clone());
                self.by_token.pin().insert(key, live.clone());
            }
        }
        // Retired while it was put down: whoever did it may have looked before the token was there.
        if live.ended.load(Ordering::Acquire) {
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
        live.learn(session.clone());
        // An entry that was retired meanwhile keeps nothing; what was just read counts for this request.
        let known = live.state(now).unwrap_or_else(|| Arc::new(Known::new(session)));
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
            let here = here.get(&session.id).map(|live| Timestamp::from_millis(live.seen.load(Ordering::Relaxed)));
            let last = here.into_iter().chain(noted).fold(session.issued_at, Timestamp::max);
            (session, last)
        });
        Ok(seen.collect())
    }

    /// Tells the store which sessions were used since it was last told.
    pub async fn note_seen(&self) -> Result<(), StoreError> {
        let mut news = Vec::new();
        for (id, live) in &self.by_id.pin() {
            let seen = live.seen.load(Ordering::Relaxed);
            if seen.saturating_sub(live.noted.load(Ordering::Relaxed)) >= NOTED_EVERY {
                live.noted.store(seen, Ordering::Relaxed);
                news.push((id.clone(), Timestamp::from_millis(seen)));
            }
        }
        self.store.note_seen(&news).await
    }

    /// Keeps a new session.
    pub async fn create(&self, session: &Session) -> Result<(), StoreError> {
        self.store.create(session).await
    }

    /// Ends a session here and in the store. Durable, and effective on this gateway, when it returns.
    pub async fn end(&self, id: &SessionId, cause: EndCause) -> Result<(), StoreError> {
        self.store.revoke(id, self.token_lifetime, cause).await?;
        self.ended(id);
        Ok(())
    }

    /// Makes another of the held roles the active one.
    pub async fn switch_role(&self, id: &SessionId, role: &RoleName) -> Result<Switched, StoreError> {
        self.change(id, |session| {
            if !session.holds(role.as_str()) {
                return false;
            }
            session.current_role = role.clone();
            // Whoever puts on another hat proves it anew.
            session.stepped_up_until = None;
            true
        })
        .await
    }

    /// Steps a session up until `until`; a half-authenticated one is a full one from here on.
    pub async fn step_up(&self, id: &SessionId, until: Timestamp) -> Result<Switched, StoreError> {
        self.change(id, |session| {
            session.stepped_up_until = Some(until);
            session.stage = Stage::Full;
            true
        })
        .await
    }

    /// Lets a session end at `end`, if it would go on longer.
    pub async fn shorten(&self, id: &SessionId, end: Timestamp) -> Result<Switched, StoreError> {
        self.change(id, |session| {
            session.expires_at = session.expires_at.min(end);
            true
        })
        .await
    }

    /// Ends every session of an employee. Returns how many there were.
    pub async fn end_all_of(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        cause: EndCause,
    ) -> Result<usize, StoreError> {
        self.end_those_of(corp_id, employee_id, cause, |_| true).await
    }

    /// Ends those sessions of an employee that fit. Returns how many there were.
    pub async fn end_those_of(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        cause: EndCause,
        fits: impl Fn(&Session) -> bool,
    ) -> Result<usize, StoreError> {
        let mut sessions = self.store.of_employee(corp_id, employee_id).await?;
        sessions.retain(fits);
        for session in &sessions {
            self.end(&session.id, cause).await?;
        }
        Ok(sessions.len())
    }

    /// Gives every session of an employee what is known of them now. Returns how many had something else.
    pub async fn change_profile(&self, employee: &Employee) -> Result<usize, StoreError> {
        let mut sessions = self.store.of_employee(&employee.corp_id, &employee.employee_id).await?;
        sessions.retain(|session| {
            (&session.name, &session.department, &session.avatar)
                != (&employee.name, &employee.department, &employee.avatar)
        });
        for session in &sessions {
            self.change(&session.id, |session| {
                session.name.clone_from(&employee.name);
                session.department.clone_from(&employee.department);
                session.avatar.clone_from(&employee.avatar);
                true
            })
            .await?;
        }
        Ok(sessions.len())
    }

    /// Gives every session of an employee these roles; one whose active role is gone goes on in the
    /// highest that is left, and without any it ends.
    pub async fn change_roles(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
        roles: &[RoleName],
    ) -> Result<usize, StoreError> {
        let sessions = self.store.of_employee(corp_id, employee_id).await?;
        let others = sessions.iter().filter(|session| session.roles != roles);
        let mut changed = 0;
        for session in others {
            changed += 1;
            let Some(highest) = role::highest(roles) else {
                self.end(&session.id, EndCause::RolesLost).await?;
                continue;
            };
            self.change(&session.id, |session| {
                session.roles = roles.to_vec();
                if !session.holds(session.current_role.as_str()) {
                    session.current_role = highest.clone();
                    // As at a switch: whoever gets on another hat proves it anew.
                    session.stepped_up_until = None;
                }
                true
            })
            .await?;
        }
        Ok(changed)
    }

    /// Takes every session of an employee down from its step-up: the device that gave it is gone.
    pub async fn step_down(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<usize, StoreError> {
        let sessions = self.store.of_employee(corp_id, employee_id).await?;
        let stepped_up = sessions.iter().filter(|session| session.stepped_up_until.is_some());
        let mut changed = 0;
        for session in stepped_up {
            changed += 1;
            self.change(&session.id, |session| {
                session.stepped_up_until = None;
                true
            })
            .await?;
        }
        Ok(changed)
    }

    /// Changes a record, again and again until nobody came in between. `edit` says whether it may.
    async fn change(&self, id: &SessionId, edit: impl Fn(&mut Session) -> bool) -> Result<Switched, StoreError> {
        loop {
            let Some(mut session) = self.store.find(id).await? else { return Ok(Switched::Gone) };
            let seen = session.version;
            if !edit(&mut session) {
                return Ok(Switched::NotHeld);
            }
            session.version = seen.next();
            if self.store.replace(&session, seen).await? == Outcome::Done {
                self.changed(&session);
                return Ok(Switched::Done(Arc::new(Known::new(session))));
            }
        }
    }

    /// Takes in a change that was made here or elsewhere.
    pub fn hear(&self, change: &Change) {
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
            let over = match &*live.known.load() {
                Some(known) => known.session.is_expired(now),
                // Only the map holds it: nobody is reading into it.
                None => Arc::strong_count(live) == 1,
            };
            if over {
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
            live.learn(session.clone());
        }
    }

    /// Takes an entry out of use for good, whether its session is over or only its place is needed: whoever
    /// still holds it can neither fill it nor hang a token on it, and the next look asks the store.
    fn retire(&self, id: &SessionId, live: &Arc<LiveSession>) {
        live.end();
        let _ = self.by_id.pin().remove_if(id, |_, present| Arc::ptr_eq(present, live));
        self.drop_tokens(live);
    }

    fn drop_tokens(&self, live: &LiveSession) {
        let tokens = std::mem::take(&mut *live.tokens.lock().unwrap_or_else(PoisonError::into_inner));
        let by_token = self.by_token.pin();
        for token in tokens {
            by_token.remove(&token);
        }
    }

    /// Drops an arbitrary sixteenth. Entries that still wait for the store stay: an end must find them.
    fn make_room(&self) {
        let enough = self.capacity / 16 + 1;
        let by_id = self.by_id.pin();
        let settled = by_id.iter().filter(|(_, live)| live.known.load().is_some()).take(enough);
        for (id, live) in settled {
            self.retire(id, live);
        }
    }
}

#[cfg(test)]
mod tests;

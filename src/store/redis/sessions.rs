//! Sessions and the deny list.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;

use super::denials::RememberedDenial;
use super::layout::Lane;
use super::lookup::{BATCH, PagePlace, by_partition};
use super::records::{self, SessionRecord};
use super::revoke::{DenialKind, revoke_call};
use super::script::{RedisCall, ServerScript, script};
use super::{FEED_CAPACITY, FEED_LIFETIME, RedisStore, millis};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::PlatformAccount;
use crate::domain::partition::Partition;
use crate::domain::session::{EndCause, KeyId, Session, SessionId, Version};
use crate::domain::write::WriteOutcome;
use crate::store::{KeyInUse, SessionCursor, SessionIdPage, SessionPage, SessionStore, StoreError};

static CREATE: LazyLock<ServerScript> = script!("create.lua");
static REPLACE: LazyLock<ServerScript> = script!("announce.lua", "record.lua", "replace.lua");
static SHORTEN: LazyLock<ServerScript> = script!("announce.lua", "record.lua", "shorten.lua");
static SETTLE_KEY: LazyLock<ServerScript> = script!("settle_key.lua");
static NOTE_SEEN: LazyLock<ServerScript> = script!("note_seen.lua");

/// How many of a partition's sessions are kept in the list of the newest.
pub(super) const NEWEST: usize = 1000;

#[async_trait]
impl SessionStore for RedisStore {
    async fn create(&self, session: &Session) -> Result<(), StoreError> {
        let (partition, keys) = (Partition::of(session.id.as_str()), self.servers.keys());
        let all = [
            keys.session(partition, session.id.as_str()),
            keys.index(partition),
            keys.signing_keys(partition),
            keys.newest(partition),
        ];
        let call = RedisCall::script(&CREATE, partition, &all)
            .arg(records::new_session(session)?)
            .arg(self.lifetime(session.expires_at))
            .arg(session.key_id.as_ref().map_or("", KeyId::as_str))
            .arg(records::time_digits(session.expires_at))
            .arg(records::newest_entry(session))
            .arg(NEWEST)
            .arg(records::index_members(session));
        match self.servers.change("create", call).await? {
            0_u8 => Err(StoreError::Unavailable("a session with this id exists".into())),
            _ => Ok(()),
        }
    }

    async fn find(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        let (partition, keys) = (Partition::of(id.as_str()), self.servers.keys());
        let call = RedisCall::command(partition, "MGET")
            .arg(keys.session(partition, id.as_str()))
            .arg(keys.denial(partition, id.as_str()));
        let (record, denial): (Option<Vec<u8>>, Option<Vec<u8>>) = self.servers.run("find", call).await?;
        let (Some(record), None) = (record, denial) else { return Ok(None) };
        // A server that took over may have lost the denial, and the end of the session with it.
        if self.denials.contains(id, self.clock.now()) {
            return Ok(None);
        }
        let SessionRecord { session, .. } = records::parse_session(&record)?;
        if session.id != *id {
            // Another call's answer: nothing that this connection says can be trusted.
            self.servers.abandon(Lane::Calls, [partition].into_iter());
            return Err(StoreError::Unavailable("a session's record names another session".into()));
        }
        Ok((!session.is_expired(self.clock.now())).then_some(session))
    }

    async fn find_all(&self, ids: &[SessionId]) -> Result<Vec<Option<Session>>, StoreError> {
        let now = self.clock.now();
        let denied = self.denied("find_all", ids).await?;
        let records = self.records("find_all", ids).await?;
        let live = records.into_iter().zip(denied).map(|(record, denied)| {
            let session = record.filter(|_| !denied)?.session;
            (!session.is_expired(now)).then_some(session)
        });
        Ok(live.collect())
    }

    async fn replace(&self, session: &Session, seen: Version) -> Result<WriteOutcome, StoreError> {
        let (partition, keys) = (Partition::of(session.id.as_str()), self.servers.keys());
        let all = [
            keys.session(partition, session.id.as_str()),
            keys.denial(partition, session.id.as_str()),
            keys.feed(partition),
        ];
        let call = RedisCall::script(&REPLACE, partition, &all)
            .arg(seen.0)
            .arg(records::session_text(session)?)
            .arg(self.lifetime(session.expires_at))
            .arg(FEED_CAPACITY)
            .arg(millis(FEED_LIFETIME));
        Ok(outcome(self.servers.change("replace", call).await?))
    }

    async fn revoke_all(&self, ids: &[SessionId], lifetime: Duration, cause: EndCause) -> Result<(), StoreError> {
        let revoke = |(partition, ids): (Partition, Vec<&SessionId>)| {
            revoke_call(&self.servers, &self.clock, partition, &ids, lifetime, cause, DenialKind::New)
        };
        let calls: Vec<RedisCall> = by_partition(ids).into_iter().map(revoke).collect();
        self.servers.change_all::<u64>("revoke", &calls).await?;
        let until = self.clock.now().plus(lifetime);
        for id in ids {
            self.denials.remember(RememberedDenial { id: id.clone(), until, cause });
        }
        Ok(())
    }

    async fn shorten_all(&self, ids: &[SessionId], end: Timestamp) -> Result<Vec<Session>, StoreError> {
        let shorten = |(partition, ids): (Partition, Vec<&SessionId>)| {
            let keys = self.servers.keys();
            let sessions = ids.iter().map(|id| keys.session(partition, id.as_str()));
            let all: Vec<String> = std::iter::once(keys.feed(partition)).chain(sessions).collect();
            RedisCall::script(&SHORTEN, partition, &all)
                .arg(end.millis())
                .arg(self.lifetime(end))
                .arg(FEED_CAPACITY)
                .arg(millis(FEED_LIFETIME))
        };
        let calls: Vec<RedisCall> = by_partition(ids).into_iter().map(shorten).collect();
        let changed: Vec<Vec<Vec<u8>>> = self.servers.change_all("shorten", &calls).await?;
        changed.iter().flatten().map(|text| records::parse_session_text(text)).collect()
    }

    async fn of_employee(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Vec<Session>, StoreError> {
        self.of_members("of_employee", &records::employee_members(corp_id, employee_id)).await
    }

    async fn readable_of_employee(
        &self,
        corp_id: &CorpId,
        employee_id: &EmployeeId,
    ) -> (Vec<Session>, Result<(), StoreError>) {
        self.readable_of_members("of_employee", &records::employee_members(corp_id, employee_id)).await
    }

    async fn last_seen(&self, ids: &[SessionId]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let records = self.records("last_seen", ids).await?;
        Ok(records.into_iter().map(|record| record.and_then(|record| record.last_seen)).collect())
    }

    async fn note_seen(&self, seen: &[(SessionId, Timestamp)]) -> Result<(), StoreError> {
        let now = self.clock.now();
        for part in seen.chunks(BATCH) {
            let times: HashMap<&SessionId, Timestamp> = part.iter().map(|(id, at)| (id, *at)).collect();
            let note = |(partition, ids): (Partition, Vec<&SessionId>)| {
                let keys = self.servers.keys();
                let all: Vec<String> = ids.iter().map(|id| keys.session(partition, id.as_str())).collect();
                let seen = ids.iter().filter_map(|id| times.get(id)).map(|at| records::time_digits(*at));
                RedisCall::script(&NOTE_SEEN, partition, &all).arg(now.millis()).arg(seen.collect::<Vec<_>>())
            };
            let calls: Vec<RedisCall> = by_partition(times.keys().copied()).into_iter().map(note).collect();
            self.servers.run_all::<u64>("note_seen", &calls).await?;
        }
        Ok(())
    }

    async fn count(&self) -> Result<u64, StoreError> {
        // Every session has one member by employee in the index of its partition.
        let count = |partition| {
            let index = self.servers.keys().index(partition);
            RedisCall::command(partition, "ZLEXCOUNT").arg(index).arg("[e\0").arg("(e\x01")
        };
        let calls: Vec<RedisCall> = Partition::all().map(count).collect();
        let counts: Vec<u64> = self.servers.run_all("count", &calls).await?;
        Ok(counts.into_iter().sum())
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Session>, StoreError> {
        let list = |partition| {
            let last = i64::try_from(limit.min(NEWEST)).unwrap_or(0) - 1;
            RedisCall::command(partition, "LRANGE").arg(self.servers.keys().newest(partition)).arg(0).arg(last)
        };
        if limit == 0 {
            return Ok(Vec::new());
        }
        let calls: Vec<RedisCall> = Partition::all().map(list).collect();
        let lists: Vec<Vec<String>> = self.servers.run_all("newest", &calls).await?;
        let mut entries: Vec<String> = lists.into_iter().flatten().collect();
        // Each begins with the time of its start.
        entries.sort_unstable_by(|left, right| right.cmp(left));
        let ids: Vec<SessionId> =
            entries.iter().filter_map(|entry| entry.get(records::TIME..)).map(SessionId::new).collect();
        let mut sessions = Vec::new();
        for part in ids.chunks(BATCH) {
            sessions.extend(self.live("newest", part).await?);
            if sessions.len() >= limit {
                break;
            }
        }
        sessions.truncate(limit);
        Ok(sessions)
    }

    async fn page(&self, after: Option<&SessionCursor>, limit: usize) -> Result<SessionPage, StoreError> {
        let mut place = PagePlace::of(after);
        let (mut sessions, mut left) = (Vec::new(), limit);
        while let Some(partition) = place.partition() {
            let members = self.members("page", partition, place.member.as_deref(), left).await?;
            let ids: Vec<SessionId> = members.iter().map(|member| records::member_id(member)).collect();
            sessions.extend(self.live("page", &ids).await?);
            left -= members.len().min(left);
            if left == 0 {
                place.member = members.into_iter().next_back();
                return Ok(SessionPage { sessions, next: Some(place.cursor()) });
            }
            place = place.next_partition();
        }
        Ok(SessionPage { sessions, next: None })
    }

    async fn keys(&self) -> Result<Vec<KeyInUse>, StoreError> {
        let now = records::time_digits(self.clock.now());
        let latest = self.latest_of_keys().await?;
        let live = latest.iter().flatten().filter(|(_, latest)| **latest > now).map(|(key, _)| key.as_str());
        let keys: BTreeSet<&str> = live.collect();
        let in_use = |key: &str| KeyInUse {
            id: (!key.is_empty()).then(|| KeyId::new(key)),
            latest: latest.iter().map(|of_partition| of_partition.get(key).cloned()).collect(),
        };
        Ok(keys.into_iter().map(in_use).collect())
    }

    async fn of_key(
        &self,
        key: &KeyInUse,
        end: Timestamp,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionIdPage, StoreError> {
        let mut place = PagePlace::of(after);
        while let Some(partition) = place.partition() {
            if latest_after(key, partition, end).is_none() {
                place = place.next_partition();
                continue;
            }
            let members = self.members("of_key", partition, place.member.as_deref(), limit).await?;
            let ids: Vec<SessionId> = members.iter().map(|member| records::member_id(member)).collect();
            let sessions = self.live("of_key", &ids).await?;
            let concerned = sessions.into_iter().filter(|one| one.key_id == key.id && one.expires_at > end);
            let ids = concerned.map(|session| session.id).collect();
            let is_last = members.len() < limit;
            place.member = members.into_iter().next_back();
            let place = if is_last { place.next_partition() } else { place };
            return Ok(SessionIdPage { ids, next: place.partition().map(|_| place.cursor()) });
        }
        Ok(SessionIdPage { ids: Vec::new(), next: None })
    }

    async fn settle_key(
        &self,
        key: &KeyInUse,
        end: Timestamp,
        after: Option<&SessionCursor>,
        next: Option<&SessionCursor>,
    ) -> Result<(), StoreError> {
        let name = key.id.as_ref().map_or("", KeyId::as_str);
        let done = Partition::all().skip(PagePlace::of(after).number).take_while(|partition| {
            next.is_none_or(|next| usize::from(partition.number()) < PagePlace::of(Some(next)).number)
        });
        let settle = |partition| {
            let keys = [self.servers.keys().signing_keys(partition)];
            let seen = latest_after(key, partition, end)?;
            Some(RedisCall::script(&SETTLE_KEY, partition, &keys).arg(name).arg(seen).arg(records::time_digits(end)))
        };
        let calls: Vec<RedisCall> = done.filter_map(settle).collect();
        if !calls.is_empty() {
            self.servers.run_all::<u8>("keys", &calls).await?;
        }
        Ok(())
    }

    async fn of_platform_account(&self, account: &PlatformAccount) -> Result<Vec<Session>, StoreError> {
        self.of_members("of_account", &records::account_members(account)).await
    }
}

/// The last expiry of a key's sessions in a partition, if it is after `end`.
fn latest_after(key: &KeyInUse, partition: Partition, end: Timestamp) -> Option<&str> {
    let latest = key.latest.get(usize::from(partition.number()))?.as_deref()?;
    (*latest > *records::time_digits(end)).then_some(latest)
}

pub(super) fn outcome(changed: u8) -> WriteOutcome {
    if changed == 0 { WriteOutcome::Conflict } else { WriteOutcome::Applied }
}

//! Finds the sessions of an index and reads their records.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::keys::RedisKeys;
use super::records::{self, SessionRecord};
use super::script::RedisCall;
use super::{RedisStore, millis};
use crate::domain::clock::Timestamp;
use crate::domain::partition::Partition;
use crate::domain::session::{Session, SessionId};
use crate::store::{SessionCursor, StoreError};

/// How many records a call reads or changes: some hundred kilobytes, and less than a millisecond of a server.
pub(super) const BATCH: usize = 500;

/// A session cannot be valid for longer: the servers count milliseconds in 63 bits.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// How long a key lives: at least a moment, because zero would be refused.
pub(super) fn key_lifetime(lifetime: Duration) -> u64 {
    millis(lifetime.min(LONGEST)).max(1)
}

/// The sessions of each partition.
pub(super) fn by_partition<'a>(
    ids: impl IntoIterator<Item = &'a SessionId>,
) -> BTreeMap<Partition, Vec<&'a SessionId>> {
    let mut parts: BTreeMap<Partition, Vec<&SessionId>> = BTreeMap::new();
    for id in ids {
        parts.entry(Partition::of(id.as_str())).or_default().push(id);
    }
    parts
}

impl RedisStore {
    /// How long a key that ends at `end` lives.
    pub(super) fn lifetime(&self, end: Timestamp) -> u64 {
        key_lifetime(self.clock.now().until(end))
    }

    /// The records of these sessions, in their order. `None`: there is none.
    pub(super) async fn records(
        &self,
        op: &'static str,
        ids: &[SessionId],
    ) -> Result<Vec<Option<SessionRecord>>, StoreError> {
        let found = self.values(op, ids, RedisKeys::session).await?;
        Ok(ids.iter().map(|id| found.get(id).and_then(|record| readable(id, record))).collect())
    }

    /// Whether the tokens of these sessions are denied, in their order: by the store, or by what this gateway remembers.
    pub(super) async fn denied(&self, op: &'static str, ids: &[SessionId]) -> Result<Vec<bool>, StoreError> {
        let now = self.clock.now();
        let denied = self.values(op, ids, RedisKeys::denial).await?;
        Ok(ids.iter().map(|id| denied.contains_key(id) || self.denials.contains(id, now)).collect())
    }

    /// The values of the keys of these sessions, for those that have one.
    async fn values<'a>(
        &self,
        op: &'static str,
        ids: &'a [SessionId],
        key: fn(&RedisKeys, Partition, &str) -> String,
    ) -> Result<HashMap<&'a SessionId, Vec<u8>>, StoreError> {
        let mut values = HashMap::new();
        for part in ids.chunks(BATCH) {
            let parts: Vec<(Partition, Vec<&SessionId>)> = by_partition(part).into_iter().collect();
            let read = |(partition, ids): &(Partition, Vec<&SessionId>)| {
                let keys = ids.iter().map(|id| key(self.servers.keys(), *partition, id.as_str()));
                RedisCall::command(*partition, "MGET").arg(keys.collect::<Vec<_>>())
            };
            let calls: Vec<RedisCall> = parts.iter().map(read).collect();
            let found: Vec<Vec<Option<Vec<u8>>>> = self.servers.run_all(op, &calls).await?;
            for ((_, ids), found) in parts.into_iter().zip(found) {
                if found.len() != ids.len() {
                    return Err(StoreError::Unavailable("the server answered another number of values".into()));
                }
                values.extend(ids.into_iter().zip(found).filter_map(|(id, value)| Some((id, value?))));
            }
        }
        Ok(values)
    }

    /// The live sessions among these.
    pub(super) async fn live(&self, op: &'static str, ids: &[SessionId]) -> Result<Vec<Session>, StoreError> {
        let now = self.clock.now();
        let records = self.records(op, ids).await?;
        Ok(records.into_iter().flatten().map(|record| record.session).filter(|one| !one.is_expired(now)).collect())
    }

    /// The live sessions whose members of the index begin so, newest first.
    pub(super) async fn of_members(&self, op: &'static str, begin: &str) -> Result<Vec<Session>, StoreError> {
        let (sessions, read) = self.readable_of_members(op, begin).await;
        read.map(|()| sessions)
    }

    /// Those of these sessions that can be read, and the failure of the others.
    pub(super) async fn readable_of_members(
        &self,
        op: &'static str,
        begin: &str,
    ) -> (Vec<Session>, Result<(), StoreError>) {
        let search = |partition| {
            let index = self.servers.keys().index(partition);
            // No UTF-8 text has a byte 0xff: it is after everything that begins so.
            let (first, last) = (format!("[{begin}"), [b"(", begin.as_bytes(), b"\xff"].concat());
            RedisCall::command(partition, "ZRANGEBYLEX").arg(index).arg(first).arg(last)
        };
        let calls: Vec<RedisCall> = Partition::all().map(search).collect();
        let (mut ids, mut read) = (Vec::new(), Ok(()));
        for members in self.servers.run_each::<Vec<String>>(op, &calls).await {
            match members {
                Ok(members) => ids.extend(members.iter().map(|member| records::member_id(member))),
                Err(error) => read = Err(error),
            }
        }
        match self.live(op, &ids).await {
            Ok(mut sessions) => {
                sessions.sort_by_key(|session| std::cmp::Reverse(session.issued_at));
                (sessions, read)
            }
            Err(error) => (Vec::new(), Err(error)),
        }
    }

    /// The next members of an index by employee, after `after`.
    pub(super) async fn members(
        &self,
        op: &'static str,
        partition: Partition,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let first = after.map_or_else(|| "[e\0".to_owned(), |after| format!("({after}"));
        let call = RedisCall::command(partition, "ZRANGEBYLEX")
            .arg(self.servers.keys().index(partition))
            .arg(first)
            .arg("(f")
            .arg("LIMIT")
            .arg(0)
            .arg(limit);
        self.servers.run(op, call).await
    }
}

/// The record of a session, if it can be read and is that session's: a record that names another one lets nobody in.
fn readable(id: &SessionId, record: &[u8]) -> Option<SessionRecord> {
    match records::parse_session(record) {
        Ok(record) if record.session.id == *id => Some(record),
        Ok(_) => {
            tracing::error!(session.id = id.as_str(), "a session's record names another session; nobody can use it");
            None
        }
        Err(error) => {
            tracing::warn!(session.id = id.as_str(), %error, "a session cannot be read; nobody can use it");
            None
        }
    }
}

impl RedisStore {
    /// The signing keys of each partition, with the last expiry that a session of theirs had.
    pub(super) async fn latest_of_keys(&self) -> Result<Vec<BTreeMap<String, String>>, StoreError> {
        let read =
            |partition| RedisCall::command(partition, "HGETALL").arg(self.servers.keys().signing_keys(partition));
        let calls: Vec<RedisCall> = Partition::all().map(read).collect();
        self.servers.run_all("keys", &calls).await
    }
}

/// Where a page begins: in this partition, after this member of its index.
pub(super) struct PagePlace {
    pub(super) number: usize,
    pub(super) member: Option<String>,
}

impl PagePlace {
    pub(super) fn of(cursor: Option<&SessionCursor>) -> Self {
        let Some((number, member)) = cursor.and_then(|cursor| cursor.as_str().split_once(' ')) else {
            return Self { number: 0, member: None };
        };
        Self {
            number: number.parse().unwrap_or(usize::MAX),
            member: Some(member.to_owned()).filter(|one| !one.is_empty()),
        }
    }

    pub(super) fn cursor(&self) -> SessionCursor {
        SessionCursor::new(format!("{} {}", self.number, self.member.as_deref().unwrap_or_default()))
    }

    pub(super) fn partition(&self) -> Option<Partition> {
        Partition::all().nth(self.number)
    }

    pub(super) fn next_partition(&self) -> Self {
        Self { number: self.number + 1, member: None }
    }
}

//! Sessions and denials that come from another store or go there.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;

use super::lookup::{BATCH, by_partition, key_lifetime};
use super::records;
use super::script::{RedisCall, ServerScript, script};
use super::sessions::NEWEST;
use super::{FEED_CAPACITY, FEED_LIFETIME, RedisStore, millis};
use crate::domain::partition::Partition;
use crate::domain::session::{EndCause, KeyId, SessionId};
use crate::store::transfer::{Denial, DenialPage, ImportCounts, PortableSession, SessionTransfer};
use crate::store::{SessionCursor, StoreError};

static IMPORT: LazyLock<ServerScript> = script!("announce.lua", "record.lua", "import.lua");
static DENY: LazyLock<ServerScript> = script!("announce.lua", "record.lua", "deny.lua");

/// What stands before the id in the key of a denial, after its partition.
const DENIAL: &str = "}:d:";

#[async_trait]
impl SessionTransfer for RedisStore {
    /// Denials have no index, so this reads the names of all keys: of one server after the other.
    async fn denials(&self, after: Option<&SessionCursor>, limit: usize) -> Result<DenialPage, StoreError> {
        let firsts: Vec<Partition> = {
            let layout = self.servers.layout();
            let layout = layout.borrow();
            layout.primaries().iter().filter_map(|(_, partitions)| partitions.first().copied()).collect()
        };
        let (number, cursor) = after.and_then(|after| after.as_str().split_once(' ')).unwrap_or(("0", "0"));
        let number: u8 = number.parse().unwrap_or(0);
        let Some(server) = firsts.iter().find(|first| first.number() >= number) else {
            return Ok(DenialPage { denials: Vec::new(), next: None });
        };
        let any = self.servers.keys().denial(*server, "*");
        let pattern = any.replacen(&format!("{{p{:02}", server.number()), "{p??", 1);
        let scan =
            RedisCall::command(*server, "SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(limit.max(1));
        let (cursor, keys): (String, Vec<String>) = self.servers.run("denials", scan).await?;
        let place = if cursor == "0" {
            let after = firsts.iter().find(|first| first.number() > server.number());
            after.map(|first| format!("{} 0", first.number()))
        } else {
            Some(format!("{} {cursor}", server.number()))
        };
        let ids = keys.iter().filter_map(|key| key.split_once(DENIAL)).map(|(_, id)| SessionId::new(id)).collect();
        Ok(DenialPage { denials: self.with_ends(ids).await?, next: place.map(SessionCursor::new) })
    }

    async fn import_denials(&self, denials: &[Denial]) -> Result<(), StoreError> {
        let (now, keys) = (self.clock.now(), self.servers.keys());
        for part in denials.chunks(BATCH) {
            let by_id: HashMap<&SessionId, &Denial> = part.iter().map(|denial| (&denial.id, denial)).collect();
            let deny = |(partition, ids): (Partition, Vec<&SessionId>)| {
                let mut all = vec![keys.index(partition), keys.feed(partition)];
                for id in &ids {
                    all.extend([keys.session(partition, id.as_str()), keys.denial(partition, id.as_str())]);
                }
                let call = RedisCall::script(&DENY, partition, &all).arg(FEED_CAPACITY).arg(millis(FEED_LIFETIME));
                ids.iter().filter_map(|id| by_id.get(id)).fold(call, |call, denial| {
                    // Why the other store denies it is not recorded.
                    let text = format!("{} {} ", EndCause::Operator.as_str(), denial.until.millis());
                    call.arg(key_lifetime(now.until(denial.until))).arg(text).arg(denial.id.as_str())
                })
            };
            let calls: Vec<RedisCall> = by_partition(by_id.keys().copied()).into_iter().map(deny).collect();
            self.servers.change_all::<u64>("import", &calls).await?;
        }
        Ok(())
    }

    async fn import_sessions(&self, sessions: &[PortableSession]) -> Result<ImportCounts, StoreError> {
        let mut parts: BTreeMap<Partition, Vec<&PortableSession>> = BTreeMap::new();
        for imported in sessions {
            parts.entry(Partition::of(imported.session.id.as_str())).or_default().push(imported);
        }
        let mut calls = Vec::new();
        for (partition, imported) in &parts {
            for part in imported.chunks(BATCH) {
                calls.push(self.import_call(*partition, part)?);
            }
        }
        let mut counts = ImportCounts::default();
        for (written, kept, denied) in self.servers.change_all::<(usize, usize, usize)>("import", &calls).await? {
            counts += ImportCounts { written, kept, denied };
        }
        Ok(counts)
    }
}

impl RedisStore {
    /// Writes sessions of one partition in one step.
    fn import_call(&self, partition: Partition, sessions: &[&PortableSession]) -> Result<RedisCall, StoreError> {
        let keys = self.servers.keys();
        let mut all =
            vec![keys.index(partition), keys.signing_keys(partition), keys.newest(partition), keys.feed(partition)];
        for PortableSession { session, .. } in sessions {
            all.extend([keys.session(partition, session.id.as_str()), keys.denial(partition, session.id.as_str())]);
        }
        let mut call =
            RedisCall::script(&IMPORT, partition, &all).arg(NEWEST).arg(FEED_CAPACITY).arg(millis(FEED_LIFETIME));
        for PortableSession { session, last_seen } in sessions {
            let mut members = records::index_members(session);
            members.resize(2, String::new());
            call = call
                .arg(records::used_session(session, *last_seen)?)
                .arg(self.lifetime(session.expires_at))
                .arg(session.key_id.as_ref().map_or("", KeyId::as_str))
                .arg(records::newest_entry(session))
                .arg(members);
        }
        Ok(call)
    }

    /// The denials of these sessions that still hold.
    async fn with_ends(&self, ids: Vec<SessionId>) -> Result<Vec<Denial>, StoreError> {
        let left = |id: &SessionId| {
            let partition = Partition::of(id.as_str());
            RedisCall::command(partition, "PTTL").arg(self.servers.keys().denial(partition, id.as_str()))
        };
        let calls: Vec<RedisCall> = ids.iter().map(left).collect();
        let now = self.clock.now();
        let lifetimes: Vec<i64> = self.servers.run_all("denials", &calls).await?;
        let holding = ids.into_iter().zip(lifetimes).filter_map(|(id, left)| {
            let left = u64::try_from(left).ok().filter(|left| *left > 0)?;
            Some(Denial { id, until: now.plus(Duration::from_millis(left)) })
        });
        Ok(holding.collect())
    }
}

//! Revokes sessions: now, and again on a server that may have lost it.

use std::sync::LazyLock;
use std::time::Duration;

use super::denials::RememberedDenial;
use super::lookup::{BATCH, by_partition, key_lifetime};
use super::script::{RedisCall, ServerScript, script};
use super::servers::RedisServers;
use super::{FEED_CAPACITY, FEED_LIFETIME, millis};
use crate::domain::clock::Clock;
use crate::domain::partition::Partition;
use crate::domain::session::{EndCause, SessionId};
use crate::store::StoreError;

static REVOKE: LazyLock<ServerScript> = script!("announce.lua", "record.lua", "revoke.lua");

/// How often and how soon a repetition that fails is tried again: while the server takes over, and no longer.
const ATTEMPTS: u32 = 100;
const RETRY: Duration = Duration::from_millis(300);

/// Whether a denial is new, or repeated because a server may have lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DenialKind {
    New,
    Again,
}

/// Revokes the sessions of one partition in one step, and announces it in the same.
pub(super) fn revoke_call(
    servers: &RedisServers,
    clock: &Clock,
    partition: Partition,
    ids: &[&SessionId],
    lifetime: Duration,
    cause: EndCause,
    kind: DenialKind,
) -> RedisCall {
    let keys = servers.keys();
    let mut all = vec![keys.index(partition), keys.feed(partition)];
    for id in ids {
        all.extend([keys.session(partition, id.as_str()), keys.denial(partition, id.as_str())]);
    }
    let until = clock.now().plus(lifetime).millis();
    let mut call = RedisCall::script(&REVOKE, partition, &all)
        .arg(key_lifetime(lifetime))
        .arg(FEED_CAPACITY)
        .arg(millis(FEED_LIFETIME))
        .arg(format!("{} {until} ", cause.as_str()))
        .arg(match kind {
            DenialKind::New => "new",
            DenialKind::Again => "again",
        });
    for id in ids {
        call = call.arg(id.as_str());
    }
    call
}

/// Writes denials again, a few at a time, until they are written.
pub(super) async fn deny_again(
    servers: &RedisServers,
    clock: &Clock,
    mut denials: Vec<RememberedDenial>,
) -> Result<(), StoreError> {
    // Those that are valid longest first; a part has one lifetime, the longest.
    denials.sort_unstable_by_key(|denial| (denial.cause.as_str(), std::cmp::Reverse(denial.until)));
    for part in denials.chunk_by(|left, right| left.cause == right.cause).flat_map(|part| part.chunks(BATCH)) {
        let mut attempt = 1;
        while let Err(error) = deny_part(servers, clock, part).await {
            if attempt == ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
            tokio::time::sleep(RETRY).await;
        }
    }
    Ok(())
}

async fn deny_part(servers: &RedisServers, clock: &Clock, part: &[RememberedDenial]) -> Result<(), StoreError> {
    let Some(first) = part.first() else { return Ok(()) };
    let lifetime = clock.now().until(first.until);
    let revoke = |(partition, ids): (Partition, Vec<&SessionId>)| {
        revoke_call(servers, clock, partition, &ids, lifetime, first.cause, DenialKind::Again)
    };
    let calls: Vec<RedisCall> = by_partition(part.iter().map(|denial| &denial.id)).into_iter().map(revoke).collect();
    servers.run_all::<u64>("deny_again", &calls).await.map(|_| ())
}

//! Reads the streams of one primary.
//!
//! Outside of a cluster one blocking read follows all streams. In a cluster a read may name the keys of one slot only, and a
//! blocked connection can do nothing else: there each change also publishes the name of its stream, which says which one to
//! read. A message that is lost delays the change until the next read of all, which follows within the same time.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{FromRedisValue, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::entry::{EntryId, FeedEntry};
use crate::domain::clock::Clock;
use crate::domain::partition::Partition;
use crate::store::redis::connect::{OpenConnection, check_primary};
use crate::store::redis::script::RedisCall;
use crate::store::redis::servers::RedisServers;
use crate::store::redis::{RECEIVER_CAPACITY, millis};

/// How many entries of a partition one read returns: of all together as many as receivers may lag, and few enough to arrive
/// within the time limit.
const READ_COUNT: usize = RECEIVER_CAPACITY / Partition::COUNT as usize;

/// What one read has found.
pub(super) struct FeedRead {
    /// New entries, in order within each partition.
    pub(super) entries: Vec<(Partition, FeedEntry)>,
    /// The partitions that were read to their end.
    pub(super) complete: Vec<Partition>,
    /// When the read began: [`Clock::running`].
    pub(super) began: Duration,
}

/// Whether the server blocks a read until something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadMode {
    Blocking,
    Woken,
}

/// What a stream has: its key and its new entries.
type StreamEntries = Option<Vec<(String, Vec<FeedEntry>)>>;

/// Reads the streams of some partitions on a connection of its own.
pub(super) struct FeedReader {
    servers: Arc<RedisServers>,
    connection: MultiplexedConnection,
    events: mpsc::UnboundedReceiver<PushInfo>,
    streams: Vec<(Partition, String)>,
    mode: ReadMode,
    block: Duration,
    limit: Duration,
    /// When all streams are read again, whatever was published.
    next_full: Instant,
    /// The partitions that may have more entries than the last read returned.
    unfinished: Vec<Partition>,
}

impl FeedReader {
    pub(super) async fn open(
        opened: OpenConnection,
        servers: &Arc<RedisServers>,
        partitions: &[Partition],
        block: Duration,
    ) -> Result<Self, RedisError> {
        let OpenConnection { connection, events, .. } = opened;
        let streams = partitions.iter().map(|partition| (*partition, servers.keys().feed(*partition))).collect();
        let mode = if servers.is_cluster() { ReadMode::Woken } else { ReadMode::Blocking };
        let (limit, next_full) = (servers.timeout(), Instant::now());
        let (servers, unfinished) = (servers.clone(), Vec::new());
        let mut reader = Self { servers, connection, events, streams, mode, block, limit, next_full, unfinished };
        if mode == ReadMode::Woken {
            reader.subscribe().await;
        }
        Ok(reader)
    }

    async fn subscribe(&mut self) {
        let channels: Vec<&str> = self.streams.iter().map(|(_, stream)| stream.as_str()).collect();
        let subscribed = within(self.limit, self.connection.subscribe(channels)).await;
        if let Err(error) = subscribed {
            let interval = self.block;
            tracing::warn!(%error, ?interval, "no messages from the Redis cluster: changes are read at an interval");
        }
    }

    /// The next changes; empty if there were none for a while. `position` is the entry after which a partition is read.
    pub(super) async fn next(
        &mut self,
        position: impl Fn(Partition) -> EntryId,
        clock: &Clock,
    ) -> Result<FeedRead, RedisError> {
        match self.mode {
            ReadMode::Blocking => {
                let began = clock.uptime();
                let mut read = ::redis::cmd("XREAD");
                read.arg("COUNT").arg(READ_COUNT).arg("BLOCK").arg(millis(self.block).max(1)).arg("STREAMS");
                read.arg(self.streams.iter().map(|(_, stream)| stream).collect::<Vec<_>>());
                read.arg(self.streams.iter().map(|(of, _)| position(*of).to_string()).collect::<Vec<_>>());
                let sent = self.connection.send_packed_command(&read);
                let answer = within(self.limit + self.block, sent).await?.extract_error()?;
                let partitions = self.streams.iter().map(|(partition, _)| *partition).collect();
                Ok(self.collect(partitions, vec![::redis::from_redis_value(answer)?], began))
            }
            ReadMode::Woken => {
                let partitions = self.wait().await?;
                let began = clock.uptime();
                let due = self.streams.iter().filter(|(of, _)| partitions.contains(of));
                let read = |(partition, stream): &(Partition, String)| {
                    let call = RedisCall::command(*partition, "XREAD").arg("COUNT").arg(READ_COUNT).arg("STREAMS");
                    call.arg(stream).arg(position(*partition).to_string())
                };
                let reads: Vec<RedisCall> = due.map(read).collect();
                let found = self.ask(&reads).await?;
                Ok(self.collect(partitions, found, began))
            }
        }
    }

    /// Waits for the partitions that have changed, or until all are due. Fails when the connection is lost: the crate says so
    /// once, and then closes the channel.
    async fn wait(&mut self) -> Result<Vec<Partition>, RedisError> {
        let mut changed = std::mem::take(&mut self.unfinished);
        let mut next = self.events.try_recv().ok();
        loop {
            while let Some(event) = next {
                if event.kind == PushKind::Disconnection {
                    return Err(disconnected());
                }
                changed.extend(self.named_by(&event).filter(|partition| !changed.contains(partition)));
                next = self.events.try_recv().ok();
            }
            if !changed.is_empty() {
                break;
            }
            let Ok(first) = tokio::time::timeout_at(self.next_full, self.events.recv()).await else { break };
            next = Some(first.ok_or_else(disconnected)?);
        }
        if changed.is_empty() || Instant::now() >= self.next_full {
            self.next_full = Instant::now() + self.block;
            return Ok(self.streams.iter().map(|(partition, _)| *partition).collect());
        }
        Ok(changed)
    }

    /// The partition whose stream a message names.
    fn named_by(&self, event: &PushInfo) -> Option<Partition> {
        if event.kind != PushKind::Message {
            return None;
        }
        let channel: String = ::redis::from_redis_value_ref(event.data.first()?).ok()?;
        self.streams.iter().find(|(_, stream)| *stream == channel).map(|(partition, _)| *partition)
    }

    fn collect(&mut self, mut complete: Vec<Partition>, found: Vec<StreamEntries>, began: Duration) -> FeedRead {
        let mut entries = Vec::new();
        self.unfinished.clear();
        for (stream, new) in found.into_iter().flatten().flatten() {
            let Some((partition, _)) = self.streams.iter().find(|(_, known)| *known == stream) else { continue };
            if new.len() >= READ_COUNT {
                complete.retain(|one| one != partition);
                self.unfinished.push(*partition);
            }
            entries.extend(new.into_iter().map(|entry| (*partition, entry)));
        }
        FeedRead { entries, complete, began }
    }

    /// Fails if the server is no primary any more: a replica can be read as well, and is behind.
    pub(super) async fn check_primary(&mut self) -> Result<(), RedisError> {
        within(self.limit, check_primary(&mut self.connection)).await.map(|_| ())
    }

    /// Asks several questions in one round trip. While a slot moves, a stream that is already at the other member is read there.
    pub(super) async fn ask<T: FromRedisValue>(&mut self, calls: &[RedisCall]) -> Result<Vec<T>, RedisError> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut questions = Pipeline::new();
        for call in calls {
            questions.add_command(call.command.clone());
        }
        let sent = self.connection.send_packed_commands(&questions, 0, questions.len());
        let answers = within(self.limit, sent).await?;
        let mut found = Vec::with_capacity(calls.len());
        for (call, answer) in calls.iter().zip(answers) {
            let answer = match answer {
                Value::ServerError(error) if error.code() == "ASK" => self.servers.follow_redirect(call).await?,
                answer => answer,
            };
            found.push(::redis::from_redis_value(answer.extract_error()?)?);
        }
        Ok(found)
    }
}

fn disconnected() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

/// Bounds a question. A connection that says nothing is half-open.
async fn within<T>(limit: Duration, question: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    match tokio::time::timeout(limit, question).await {
        Ok(answer) => answer,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

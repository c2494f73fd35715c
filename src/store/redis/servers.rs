//! Runs calls on the servers that have their partitions: bounded in time, redirected where a slot has moved, and never
//! reported as done when they may not be.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::redis::{Cmd, ErrorKind, FromRedisValue, RedisError, Value};
use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use super::connect::{Connector, PrimaryAddress, ServerAccess, ServerPassword};
use super::exchange::{PendingCall, SentCall, exchange, group, is_unexpected, refuses_everything, split, timed_out};
use super::keys::RedisKeys;
use super::layout::{self, Lane, Layout, Primary};
use super::script::RedisCall;
use crate::config::{RedisAddress, RedisHost, RedisLayout, StoreConfig, StoreConfirm, StoreTarget};
use crate::domain::partition::Partition;
use crate::metrics::Metrics;
use crate::store::StoreError;

/// How long a start waits for servers that do not answer yet, and between two attempts.
const START_LIMIT: Duration = Duration::from_secs(5);
const START_PAUSE: Duration = Duration::from_millis(100);

/// How long the sync of a server's disk may take. With `appendfsync everysec` it begins up to a second after the change.
const SYNC_LIMIT: Duration = Duration::from_secs(2);

/// How often a call is sent: for a script that the server does not know, and a slot that moves twice.
const ROUNDS: usize = 4;

/// The Redis servers of a store. Parts of the store share them.
pub struct RedisServers {
    keys: RedisKeys,
    layout: watch::Receiver<Layout>,
    /// Set when a call found that the layout has changed.
    stale: Arc<Notify>,
    /// Members of a cluster that take over a slot and have none yet.
    importing: Mutex<HashMap<RedisHost, Arc<Primary>>>,
    connector: Connector,
    timeout: Duration,
    confirm: StoreConfirm,
    metrics: Arc<Metrics>,
    closed: AtomicBool,
    /// Older servers cannot be asked to wait, but may write every change to disk before they answer.
    syncs_always: AtomicBool,
    is_cluster: bool,
}

impl RedisServers {
    /// Opens the servers of `[store]`. Fails if they do not answer, or cannot be written, within a few seconds.
    pub async fn open(config: &StoreConfig, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let StoreTarget::Redis(address) = config.url.target().map_err(|why| StoreError::Unavailable(why.into()))?
        else {
            return Err(StoreError::Unavailable("store.url names no Redis server".into()));
        };
        let read = |file: &Path| match file.as_os_str().is_empty() {
            true => Ok(None),
            false => std::fs::read(file).map(Some).map_err(|error| StoreError::Unavailable(error.into())),
        };
        // A file that cannot be read fails the start at once.
        read(&config.password_file)?;
        let servers = Self::new(address, read(&config.ca_file)?, config, metrics);
        servers.wait_until_written().await?;
        Ok(servers)
    }

    fn new(address: RedisAddress, authorities: Option<Vec<u8>>, config: &StoreConfig, metrics: Arc<Metrics>) -> Self {
        let (timeout, confirm) = (config.timeout.get(), config.confirm);
        let RedisAddress { layout, tls, username, password, database } = address;
        let is_cluster = matches!(layout, RedisLayout::Cluster(_));
        let password = ServerPassword::new(password, &config.password_file);
        let access = Arc::new(ServerAccess { tls, authorities, username, password, database });
        let stale = Arc::new(Notify::new());
        let (connector, layout) = match layout {
            RedisLayout::Single(host) => layout::fixed(access, PrimaryAddress::Host(host)),
            RedisLayout::Unix(path) => layout::fixed(access, PrimaryAddress::Unix(path)),
            RedisLayout::Sentinel { hosts, name } => {
                layout::fixed(access, PrimaryAddress::Sentinel { hosts: hosts.into(), name: name.into() })
            }
            RedisLayout::Cluster(hosts) => {
                let first = hosts.first().cloned().unwrap_or(RedisHost { name: String::new(), port: 0 });
                let connector = Connector::new(access, PrimaryAddress::Host(first));
                let (sender, layout) = watch::channel(Layout::default());
                tokio::spawn(layout::follow_cluster(connector.clone(), hosts, sender, stale.clone()));
                (connector, layout)
            }
        };
        let importing = Mutex::default();
        Self {
            keys: RedisKeys::new(&config.prefix),
            layout,
            stale,
            importing,
            connector,
            timeout,
            confirm,
            metrics,
            closed: AtomicBool::new(false),
            syncs_always: AtomicBool::new(false),
            is_cluster,
        }
    }

    async fn wait_until_written(&self) -> Result<(), StoreError> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            match self.probe().await {
                Err(_) if Instant::now() < deadline => tokio::time::sleep(START_PAUSE).await,
                written => return written,
            }
        }
    }

    /// Writes to every server.
    pub(super) async fn probe(&self) -> Result<(), StoreError> {
        let layout = self.layout.borrow().clone();
        // Before the slots of a cluster are known, any partition finds out whether they can be.
        let mut partitions: Vec<Partition> =
            layout.primaries().iter().filter_map(|(_, own)| own.first().copied()).collect();
        if partitions.is_empty() {
            partitions.extend(Partition::all().next());
        }
        let write =
            |partition| RedisCall::command(partition, "SET").arg(self.keys.probe(partition)).arg(1).arg("EX").arg(60);
        let calls: Vec<RedisCall> = partitions.into_iter().map(write).collect();
        self.run_all::<()>("ready", &calls).await?;
        Ok(())
    }

    /// Has the slots of a cluster read again.
    pub(super) fn note_stale(&self) {
        self.stale.notify_one();
    }

    /// Notes that answered changes are on disk without being waited for.
    pub(super) fn sync_without_waiting(&self) {
        self.syncs_always.store(true, Ordering::Release);
    }

    /// Whether the servers are a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Has later calls of these partitions use new connections: an answer on theirs was another call's, or no answer at all.
    pub(super) fn abandon(&self, lane: Lane, partitions: impl Iterator<Item = Partition>) {
        let layout = self.layout.borrow();
        partitions.for_each(|partition| layout.abandon(lane, partition));
    }

    /// Whether Sentinels say where the primary is.
    pub(super) fn asks_sentinels(&self) -> bool {
        self.connector.asks_sentinels()
    }

    /// Fails every later call.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The names of keys.
    pub fn keys(&self) -> &RedisKeys {
        &self.keys
    }

    pub(super) fn layout(&self) -> watch::Receiver<Layout> {
        self.layout.clone()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Runs one call. `op` names it in `store_seconds`.
    pub async fn run<T: FromRedisValue>(&self, op: &'static str, call: RedisCall) -> Result<T, StoreError> {
        self.run_all(op, &[call]).await?.pop().ok_or_else(no_answer)
    }

    /// Runs several calls, those of one server in one round trip, and returns their answers in order. Each is atomic, all
    /// together are not.
    pub async fn run_all<T: FromRedisValue>(
        &self,
        op: &'static str,
        calls: &[RedisCall],
    ) -> Result<Vec<T>, StoreError> {
        self.run_each(op, calls).await.into_iter().collect()
    }

    /// Runs several calls like [`RedisServers::run_all`], and returns what became of each: those of one server can fail
    /// while the others are done.
    pub async fn run_each<T: FromRedisValue>(
        &self,
        op: &'static str,
        calls: &[RedisCall],
    ) -> Vec<Result<T, StoreError>> {
        self.measured(op, Lane::Calls, calls).await
    }

    /// Runs one call that changes something, and returns once `store.confirm` holds. If that fails, the change may hold
    /// all the same.
    pub async fn change<T: FromRedisValue>(&self, op: &'static str, call: RedisCall) -> Result<T, StoreError> {
        self.change_all(op, &[call]).await?.pop().ok_or_else(no_answer)
    }

    /// Runs a call wherever the servers redirect it.
    pub(super) async fn follow_redirect(&self, call: &RedisCall) -> Result<Value, RedisError> {
        let mut answers = self.execute(Lane::Calls, std::slice::from_ref(call)).await;
        answers.pop().unwrap_or_else(|| Err((ErrorKind::UnexpectedReturnType, "an answer is missing").into()))
    }

    /// Runs several calls that change something; see [`RedisServers::change`].
    pub async fn change_all<T: FromRedisValue>(
        &self,
        op: &'static str,
        calls: &[RedisCall],
    ) -> Result<Vec<T>, StoreError> {
        let lane = if self.confirm == StoreConfirm::None { Lane::Calls } else { Lane::Confirmed };
        self.measured(op, lane, calls).await.into_iter().collect()
    }

    async fn measured<T: FromRedisValue>(
        &self,
        op: &'static str,
        lane: Lane,
        calls: &[RedisCall],
    ) -> Vec<Result<T, StoreError>> {
        let started = Instant::now();
        let answers = self.execute(lane, calls).await.into_iter();
        let read = |answer: Result<Value, RedisError>| Ok(T::from_redis_value(answer?.extract_error()?)?);
        let answers: Vec<Result<T, RedisError>> = answers.map(read).collect();
        let unexpected = calls.iter().zip(&answers).filter(|(_, answer)| answer.as_ref().is_err_and(is_unexpected));
        self.abandon(lane, unexpected.map(|(call, _)| call.partition));
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.map_err(unavailable)).collect();
        let result = if answers.iter().all(Result::is_ok) { "ok" } else { "failed" };
        self.metrics.store_seconds.with_label_values(&[op, result]).observe(started.elapsed().as_secs_f64());
        answers
    }

    /// Executes the calls of each server by themselves: one that is away does not keep the others from theirs.
    async fn execute(&self, lane: Lane, calls: &[RedisCall]) -> Vec<Result<Value, RedisError>> {
        let deadline = tokio::time::Instant::now() + self.timeout + self.sync_time(lane);
        let parts = split(&self.layout.borrow(), calls);
        let executed = parts.into_iter().map(|part| async move {
            let indexes: Vec<usize> = part.iter().map(|call| call.index).collect();
            (indexes, self.execute_part(lane, part, deadline).await)
        });
        let mut answers: Vec<Result<Value, RedisError>> = vec![Ok(Value::Nil); calls.len()];
        for (indexes, part) in futures::future::join_all(executed).await {
            match part {
                Ok(answered) => answered.into_iter().for_each(|(index, answer)| answers[index] = Ok(answer)),
                Err(error) => indexes.into_iter().for_each(|index| answers[index] = Err(error.clone())),
            }
        }
        answers
    }

    /// Executes calls until each is answered.
    async fn execute_part(
        &self,
        lane: Lane,
        mut left: Vec<PendingCall<'_>>,
        deadline: tokio::time::Instant,
    ) -> Result<Vec<(usize, Value)>, RedisError> {
        if self.closed.load(Ordering::Acquire) {
            return Err((ErrorKind::Client, "the store is closed").into());
        }
        let mut answers = Vec::with_capacity(left.len());
        let mut layouts = self.layout.clone();
        for _ in 0..ROUNDS {
            let layout = layouts.borrow_and_update().clone();
            let groups = match group(&layout, left) {
                Ok(groups) => groups,
                Err(unplaced) => {
                    left = unplaced;
                    self.next_layout(&mut layouts, deadline).await?;
                    continue;
                }
            };
            let sent = groups.into_iter().map(|(primary, calls)| self.send(primary, lane, calls, deadline));
            left = Vec::new();
            let mut moved = false;
            for (call, answer) in futures::future::try_join_all(sent).await?.into_iter().flatten() {
                match self.outcome(call, answer) {
                    SentCall::Answered(index, answer) => answers.push((index, answer)),
                    SentCall::NotRun(call) => left.push(call),
                    SentCall::Moved(call) => {
                        moved = true;
                        left.push(call);
                    }
                }
            }
            if left.is_empty() {
                return Ok(answers);
            }
            if moved {
                self.next_layout(&mut layouts, deadline).await?;
            }
        }
        Err((ErrorKind::Client, "the servers keep redirecting the call").into())
    }

    /// Whether a call was run. One that was not can be sent again.
    fn outcome<'a>(&self, sent: PendingCall<'a>, answer: Value) -> SentCall<'a> {
        let Value::ServerError(error) = &answer else { return SentCall::Answered(sent.index, answer) };
        let PendingCall { index, call, .. } = sent;
        match error.code() {
            "NOSCRIPT" => match call.with_code() {
                Some(command) => SentCall::NotRun(PendingCall { command: Some(command), ..sent }),
                None => SentCall::Answered(index, answer),
            },
            "MOVED" => SentCall::Moved(PendingCall { importing: None, ..sent }),
            "ASK" => match RedisError::from(error.clone()).redirect_node().and_then(|(host, _)| self.importing(host)) {
                // The member that takes over may not know the script, and the retries are few.
                Some(primary) => {
                    SentCall::NotRun(PendingCall { index, call, command: call.with_code(), importing: Some(primary) })
                }
                None => SentCall::Answered(index, answer),
            },
            _ => SentCall::Answered(index, answer),
        }
    }

    /// Sends calls to one server in one round trip.
    async fn send<'a>(
        &self,
        primary: Arc<Primary>,
        lane: Lane,
        calls: Vec<PendingCall<'a>>,
        deadline: tokio::time::Instant,
    ) -> Result<Vec<(PendingCall<'a>, Value)>, RedisError> {
        let Some(first) = calls.first() else { return Ok(Vec::new()) };
        let link = primary.link(lane, first.call.partition);
        let live = timeout_at(deadline, link.connection()).await.map_err(|_| timed_out())?;
        let live = live.inspect_err(|_| self.stale.notify_one())?;
        let exchange = exchange(live.connection.clone(), &calls, self.confirmation(lane));
        let sent = timeout_at(deadline, exchange).await.unwrap_or_else(|_| Err(timed_out()));
        let is_unusable = match &sent {
            Ok(answers) => answers.iter().any(refuses_everything),
            // A change that nobody confirmed is no fault of the connection.
            Err(error) => error.kind() != ErrorKind::Client,
        };
        if is_unusable {
            link.abandon(&live);
            self.stale.notify_one();
        }
        Ok(calls.into_iter().zip(sent?).collect())
    }

    /// How much longer a call may take than others because its change is synced to the disk.
    fn sync_time(&self, lane: Lane) -> Duration {
        match (lane, self.confirm) {
            (Lane::Confirmed, StoreConfirm::Fsync) => SYNC_LIMIT,
            (Lane::Calls, _) | (Lane::Confirmed, StoreConfirm::None | StoreConfirm::Replica) => Duration::ZERO,
        }
    }

    /// What follows a change on its connection, and answers how many have it.
    fn confirmation(&self, lane: Lane) -> Option<Cmd> {
        // The answer must still arrive in time.
        let limit = self.timeout * 3 / 4 + self.sync_time(lane);
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        match (lane, self.confirm) {
            (Lane::Calls, _) | (_, StoreConfirm::None) => None,
            (Lane::Confirmed, StoreConfirm::Replica) => Some(::redis::cmd("WAIT").arg(1).arg(millis).take()),
            (Lane::Confirmed, StoreConfirm::Fsync) if self.syncs_always.load(Ordering::Acquire) => None,
            (Lane::Confirmed, StoreConfirm::Fsync) => Some(::redis::cmd("WAITAOF").arg(1).arg(0).arg(millis).take()),
        }
    }

    /// A member that takes over a slot.
    fn importing(&self, host: &str) -> Option<Arc<Primary>> {
        let (name, port) = host.rsplit_once(':')?;
        let host = RedisHost { name: name.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? };
        let mut importing = self.importing.lock().unwrap_or_else(PoisonError::into_inner);
        let primary = importing.entry(host.clone()).or_insert_with(|| Arc::new(Primary::new(self.connector.to(host))));
        Some(primary.clone())
    }

    /// Waits for a layout after the one that was used.
    async fn next_layout(
        &self,
        layouts: &mut watch::Receiver<Layout>,
        deadline: tokio::time::Instant,
    ) -> Result<(), RedisError> {
        self.stale.notify_one();
        match timeout_at(deadline, layouts.changed()).await {
            Ok(Ok(())) => {
                self.importing.lock().unwrap_or_else(PoisonError::into_inner).clear();
                Ok(())
            }
            Ok(Err(_)) => {
                Err((ErrorKind::InvalidClientConfig, "the server is a cluster's: use redis+cluster:// in store.url")
                    .into())
            }
            Err(_) => Err((ErrorKind::ClusterConnectionNotFound, "no server has the partition").into()),
        }
    }
}

fn no_answer() -> StoreError {
    unavailable(RedisError::from((ErrorKind::UnexpectedReturnType, "an answer is missing")))
}

/// Whatever a server answers in place of what was asked for, the store cannot be used now.
pub(super) fn unavailable(error: RedisError) -> StoreError {
    StoreError::Unavailable(error.into())
}

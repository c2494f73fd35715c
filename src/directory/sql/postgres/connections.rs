//! A bounded pool of connections to PostgreSQL.
//!
//! Not sqlx's pool: that one retries a refused connection until the caller's time is up and pings the server after each
//! use. Here a server that is away costs its callers nothing but the first, and a connection is used again only after
//! a success, so that an answer that came too late can never be taken for the next statement's.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use crate::domain::secret::random_below;
use crate::error::{Cause, chain};

/// How many operations may wait, for each connection of the pool.
const QUEUE_PER_CONNECTION: usize = 4;

/// A connection that was idle for longer is tested before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// A connection that is older is replaced after its next use, so that the pool follows the server's name to another
/// address.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);

/// The pause after the first failure to connect; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Connections to one server.
pub(super) struct Connections {
    options: PgConnectOptions,
    /// The server for log lines, without credentials.
    server: String,
    size: u32,
    /// How long opening a connection may take.
    connect_timeout: Duration,
    /// Operations that have a connection or wait for one.
    admitted: Semaphore,
    in_use: Semaphore,
    idle: Mutex<Vec<IdleConnection>>,
    reconnect: Mutex<Reconnect>,
}

struct IdleConnection {
    connection: PgConnection,
    opened: Instant,
    since: Instant,
}

/// When a connection may be opened, after one could not be.
#[derive(Default)]
struct Reconnect {
    failures: u32,
    not_before: Option<Instant>,
}

/// A connection in use. It is closed when this is dropped, unless it is given back.
pub(super) struct Lease<'a> {
    pub(super) connection: PgConnection,
    /// Whether it comes from the pool, so that the server may have closed it meanwhile.
    pub(super) origin: Origin,
    opened: Instant,
    pool: &'a Connections,
    _permits: [SemaphorePermit<'a>; 2],
}

/// What an operation does while as many wait as may.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It fails at once.
    IfThereIsRoom,
    /// It is the next to be admitted. For what decides whether the gateway is ready: many sign-ins at once must not make it
    /// look as if the server were away.
    First,
}

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Idle,
    New,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, server: String, size: u32, connect_timeout: Duration) -> Self {
        let permits = usize::try_from(size).unwrap_or(1);
        Self {
            options,
            server,
            size,
            connect_timeout,
            admitted: Semaphore::new(permits.saturating_mul(1 + QUEUE_PER_CONNECTION)),
            in_use: Semaphore::new(permits),
            idle: Mutex::default(),
            reconnect: Mutex::default(),
        }
    }

    /// Waits for a connection, opening one if none is idle. Fails at once if too many wait, and during the pause after a
    /// failed attempt to connect. The caller bounds the time.
    pub(super) async fn acquire(&self, admission: Admission) -> Result<Lease<'_>, Cause> {
        let admitted = match admission {
            Admission::First => self.admitted.acquire().await.map_err(|_| CLOSED)?,
            Admission::IfThereIsRoom => self.admitted.try_acquire().map_err(|error| match error {
                TryAcquireError::NoPermits => "too many operations wait for the database",
                TryAcquireError::Closed => CLOSED,
            })?,
        };
        let in_use = self.in_use.acquire().await.map_err(|_| CLOSED)?;
        let lease =
            |connection, origin, opened| Lease { connection, origin, opened, pool: self, _permits: [admitted, in_use] };
        if let Some(IdleConnection { connection, opened, .. }) = self.working_idle().await {
            return Ok(lease(connection, Origin::Idle, opened));
        }
        let connection = self.connect().await?;
        Ok(lease(connection, Origin::New, Instant::now()))
    }

    async fn working_idle(&self) -> Option<IdleConnection> {
        let mut idle = lock(&self.idle).pop()?;
        if idle.since.elapsed() < TRUSTED_IDLE || idle.connection.ping().await.is_ok() {
            return Some(idle);
        }
        self.discard_idle();
        None
    }

    async fn connect(&self) -> Result<PgConnection, Cause> {
        if !lock(&self.reconnect).may_try() {
            return Err("the database could not be reached; the next attempt follows shortly".into());
        }
        let connected = match tokio::time::timeout(self.connect_timeout, self.options.connect()).await {
            Ok(connected) => connected.map_err(Cause::from),
            Err(elapsed) => Err(elapsed.into()),
        };
        let mut reconnect = lock(&self.reconnect);
        match connected {
            Ok(connection) => {
                if reconnect.succeeded() == Transition::Changed {
                    tracing::info!(server = %self.server, "the directory's database can be reached again");
                }
                Ok(connection)
            }
            Err(error) => {
                if reconnect.failed() == Transition::Changed {
                    tracing::error!(server = %self.server, error = %chain(&*error), "the directory's database cannot be reached");
                }
                Err(error)
            }
        }
    }

    /// Closes the idle connections: one of them no longer works, so the others probably do not either.
    pub(super) fn discard_idle(&self) {
        lock(&self.idle).clear();
    }

    /// Waits for the operations in progress, then closes the connections. Later operations fail.
    pub(super) async fn close(&self, patience: Duration) {
        self.admitted.close();
        let _ = tokio::time::timeout(patience, self.in_use.acquire_many(self.size)).await;
        self.in_use.close();
        let idle = std::mem::take(&mut *lock(&self.idle));
        for idle in idle {
            let _ = tokio::time::timeout(patience, idle.connection.close()).await;
        }
    }
}

const CLOSED: &str = "the directory is closed";

impl Lease<'_> {
    /// Gives the connection back after a success.
    pub(super) fn give_back(self) {
        let Lease { connection, opened, pool, _permits, .. } = self;
        if opened.elapsed() < MAX_AGE {
            lock(&pool.idle).push(IdleConnection { connection, opened, since: Instant::now() });
        }
    }
}

/// Whether the server's state differs from the one that was logged last.
#[derive(PartialEq, Eq)]
enum Transition {
    Changed,
    Same,
}

impl Reconnect {
    /// Admits one attempt per pause.
    fn may_try(&mut self) -> bool {
        let now = Instant::now();
        match self.not_before {
            Some(not_before) if now < not_before => false,
            Some(_) => {
                self.not_before = Some(now + self.pause());
                true
            }
            None => true,
        }
    }

    fn failed(&mut self) -> Transition {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(Instant::now() + self.pause());
        if self.failures == 1 { Transition::Changed } else { Transition::Same }
    }

    fn succeeded(&mut self) -> Transition {
        let before = std::mem::take(self);
        if before.failures > 0 { Transition::Changed } else { Transition::Same }
    }

    /// Half of the pause is random, so that the gateways of a fleet do not connect at the same moment.
    fn pause(&self) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10));
        let longest = doubled.min(LONGEST_PAUSE);
        longest / 2 + longest.mul_f64(f64::from(random_below(500)) / 1000.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

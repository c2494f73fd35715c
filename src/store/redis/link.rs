//! A connection to a primary that is opened again whenever it is lost.
//!
//! Many callers share the connection. The crate hands each answer to the call at the head of a queue, and a call that is
//! given up leaves its place there, so that its answer, should it come, reaches nobody. A connection on which a call ran
//! out of time is nevertheless left to the calls that wait on it: it may be half-open, and new calls get a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connect::{Connector, OpenConnection};
use crate::domain::secret::random_below;

/// The pause after a failed attempt, and the longest one: a server that came back is used within a second or so.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection that lasted so long is opened again without a pause.
const LASTING: Duration = Duration::from_secs(5);

/// A pause that doubles with each failure, between half and the whole of it by chance: many gateways that lost the same
/// server do not return at the same moment.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    pub(super) fn reset(&mut self) {
        self.0 = FIRST_PAUSE;
    }

    pub(super) async fn pause(&mut self) {
        let half = self.0 / 2;
        let chance = random_below(1 + u32::try_from(half.as_millis()).unwrap_or(u32::MAX - 1));
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(half + Duration::from_millis(chance.into())).await;
    }
}

/// A connection that a call can use.
#[derive(Clone)]
pub(super) struct LiveConnection {
    pub(super) connection: MultiplexedConnection,
    number: u64,
}

#[derive(Clone)]
enum ServerLinkState {
    /// The first attempt after the connection was lost: calls wait for it.
    Connecting,
    Up(LiveConnection),
    /// Attempts fail: calls fail at once, with the cause of the last one.
    Down(::redis::RedisError),
}

/// Calls that gave up on a connection tell its keeper.
#[derive(Default)]
struct Abandoned {
    number: AtomicU64,
    raised: Notify,
}

impl Abandoned {
    fn includes(&self, number: u64) -> bool {
        number <= self.number.load(Ordering::Acquire)
    }
}

/// Keeps a connection to a primary open until it is dropped.
pub(super) struct ServerLink {
    state: watch::Receiver<ServerLinkState>,
    abandoned: Arc<Abandoned>,
    keeper: JoinHandle<()>,
}

impl Drop for ServerLink {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl ServerLink {
    pub(super) fn new(connector: Connector) -> Self {
        let (sender, state) = watch::channel(ServerLinkState::Connecting);
        let abandoned = Arc::new(Abandoned::default());
        let keeper = tokio::spawn(keep(connector, sender, abandoned.clone()));
        Self { state, abandoned, keeper }
    }

    /// The connection. Waits for one that is being opened; fails at once while attempts fail.
    pub(super) async fn connection(&self) -> Result<LiveConnection, ::redis::RedisError> {
        if let ServerLinkState::Up(live) = &*self.state.borrow()
            && !self.abandoned.includes(live.number)
        {
            return Ok(live.clone());
        }
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                ServerLinkState::Up(live) if !self.abandoned.includes(live.number) => return Ok(live.clone()),
                ServerLinkState::Down(cause) => return Err(cause.clone()),
                ServerLinkState::Up(_) | ServerLinkState::Connecting => {}
            }
            if state.changed().await.is_err() {
                return Err((::redis::ErrorKind::Io, "the store is closed").into());
            }
        }
    }

    /// Has later calls use a new connection, whatever this one is.
    pub(super) fn abandon_current(&self) {
        let current = self.state.borrow().clone();
        if let ServerLinkState::Up(live) = current {
            self.abandon(&live);
        }
    }

    /// Has later calls use a new connection.
    pub(super) fn abandon(&self, live: &LiveConnection) {
        self.abandoned.number.fetch_max(live.number, Ordering::AcqRel);
        self.abandoned.raised.notify_one();
    }
}

async fn keep(connector: Connector, state: watch::Sender<ServerLinkState>, abandoned: Arc<Abandoned>) {
    let mut backoff = Backoff::new();
    for number in 1.. {
        let opened = Instant::now();
        match connector.open().await {
            Ok(OpenConnection { connection, events, .. }) => {
                state.send_replace(ServerLinkState::Up(LiveConnection { connection, number }));
                until_lost(events, &abandoned, number).await;
                if opened.elapsed() >= LASTING {
                    backoff.reset();
                    state.send_replace(ServerLinkState::Connecting);
                    continue;
                }
                state.send_replace(ServerLinkState::Down((::redis::ErrorKind::Io, "the connection was lost").into()));
            }
            Err(cause) => {
                if !matches!(*state.borrow(), ServerLinkState::Down(_)) {
                    tracing::warn!(error = %cause, "a Redis server cannot be reached; trying again");
                }
                state.send_replace(ServerLinkState::Down(cause));
            }
        }
        backoff.pause().await;
    }
}

/// Waits until the server closes the connection or a call gives up on it.
async fn until_lost(
    mut events: tokio::sync::mpsc::UnboundedReceiver<::redis::PushInfo>,
    abandoned: &Abandoned,
    number: u64,
) {
    let closed = async {
        while let Some(event) = events.recv().await {
            if event.kind == ::redis::PushKind::Disconnection {
                return;
            }
        }
    };
    let given_up = async {
        while !abandoned.includes(number) {
            abandoned.raised.notified().await;
        }
    };
    tokio::select! {
        () = closed => {}
        () = given_up => {}
    }
}

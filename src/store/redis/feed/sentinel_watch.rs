//! Makes sure that the feed is read from the primary that the Sentinels name.
//!
//! A primary that was cut off together with this gateway goes on answering after the Sentinels have replaced it, and receives none
//! of the logouts on other gateways. The feed of a primary is trusted only if most Sentinels have confirmed the primary within
//! `store.outage_grace`. A task of its own asks them, so that reading the feed does not wait for their answers.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::RedisHost;
use crate::store::redis::layout::Primary;

/// How often the Sentinels are asked: several times before a primary that is not confirmed is given up.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// Which primary is read.
#[derive(Clone)]
pub(super) struct WatchedPrimary {
    /// `None` while no connection is read.
    host: Option<RedisHost>,
    /// When the Sentinels were asked the last time that they named this primary.
    confirmed: Instant,
}

/// Watches which primary is read.
pub(super) struct SentinelWatch {
    state: watch::Sender<WatchedPrimary>,
    limit: Duration,
}

impl SentinelWatch {
    /// Gives a primary up once it has not been confirmed for `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        let (state, _) = watch::channel(WatchedPrimary { host: None, confirmed: Instant::now() });
        Self { state, limit }
    }

    /// A connection is read from now on. Where it leads was asked after `asked`.
    pub(super) fn begin(&self, host: Option<RedisHost>, asked: Instant) {
        self.state.send_replace(WatchedPrimary { host, confirmed: asked });
    }

    /// No connection is read any more.
    pub(super) fn end(&self) {
        self.state.send_modify(|state| state.host = None);
    }

    /// Keeps the connection from being given up for as long as it is held; `None` if it is.
    pub(super) fn reading(&self) -> Option<watch::Ref<'_, WatchedPrimary>> {
        let state = self.state.borrow();
        state.host.is_some().then_some(state)
    }

    /// Resolves when the connection must not be read any more.
    pub(super) async fn given_up(&self) {
        // Fails only when the watch is dropped.
        let _ = self.state.subscribe().wait_for(|state| state.host.is_none()).await;
    }

    /// Asks the Sentinels for as long as the store is open. Calls `lost` when the primary that is read, or was read last, has
    /// not been confirmed for too long.
    pub(super) async fn run(&self, primary: &Primary, lost: impl Fn()) {
        loop {
            let confirmed = self.state.borrow().confirmed;
            let is_confirmed = timeout_at(confirmed + self.limit, self.next_confirmation(primary)).await.is_ok();
            if is_confirmed || self.state.borrow().confirmed > confirmed {
                continue;
            }
            self.give_up(primary);
            lost();
            let _ = self.state.subscribe().wait_for(|state| state.confirmed > confirmed).await;
        }
    }

    /// Waits until the Sentinels name the primary that is read. One that they do not name is given up.
    async fn next_confirmation(&self, primary: &Primary) {
        loop {
            sleep((self.limit / 8).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)).await;
            let asked = Instant::now();
            let before = self.state.borrow().host.clone();
            match (primary.connector().sentinels_primary().await, before) {
                (Ok(named), Some(host)) if named == host => {
                    self.state.send_modify(|state| {
                        if state.host.as_ref() == Some(&named) {
                            state.confirmed = state.confirmed.max(asked);
                        }
                    });
                    return;
                }
                (Ok(named), Some(host)) => {
                    tracing::warn!(%named, %host, "the Sentinels name another primary");
                    self.give_up(primary);
                }
                (Ok(_), None) => {}
                (Err(error), _) => tracing::debug!(%error, "the Sentinels do not confirm the primary"),
            }
        }
    }

    fn give_up(&self, primary: &Primary) {
        self.end();
        primary.abandon();
    }
}

//! Background tasks beside requests: the change feed, key expiry, role reconciliation, the platform recheck and the
//! sweep. They only call the services that do the work.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast};

use super::clock_watch::ClockWatch;
use super::feed_watch;
use super::recheck::OpenRecheck;
use super::shared_rates;
use super::tasks::TaskSet;
use super::wire::{Databases, Services};
use crate::admin::keys::KeyRotation;
use crate::domain::partition::Partition;
use crate::domain::session::EndCause;
use crate::error::chain;
use crate::metrics::Metrics;
use crate::pipeline::Gate;
use crate::signin::SignInServices;
use crate::signin::roles::Roles;
use crate::sockets::CloseReason;
use crate::sockets::registry::Registry;
use crate::store::rate_leases::LeasedRates;
use crate::store::{Change, ChangeEvent, Store};
use crate::upstreams;

/// How often expired records are removed. Only disk space depends on it: reads check the expiry themselves.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// How often the key expiry looks at the wall clock, should it have jumped unnoticed.
const KEY_EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// How often the sessions of a shared store are compared with the directory.
const RECONCILIATION_INTERVAL: Duration = Duration::from_secs(3600);

/// How often changes of the signing keys are looked for. Twice of it is within the second that a change may take. Not told by
/// the change feed of the store: a key that was removed must be refused within that second while the store is away, too.
const KEY_CHANGE_INTERVAL: Duration = Duration::from_millis(400);

/// Starts all background tasks. Called before the first request is accepted, so that no revocation is missed.
pub(super) fn start(tasks: &TaskSet, services: &Services) {
    let Services { databases, gate, registry, signin, keys, roles, recheck, .. } = services;
    let store = &databases.store;
    for cause in EndCause::ALL {
        gate.metrics.sessions_ended.with_label_values(&[cause.as_str()]);
    }
    let changes = store.changes();
    // Nothing is cached or open yet, so nothing needs an earlier change. Later ones are received.
    store.feed().note_applied(gate.clock.uptime());
    let primary_changed = Arc::new(Notify::new());
    let applier = ChangeApplier {
        gate: gate.clone(),
        registry: registry.clone(),
        signin: signin.clone(),
        roles: roles.clone(),
        recheck: recheck.clone(),
        primary_changed: primary_changed.clone(),
    };
    let open = recheck.clone();
    tasks.spawn("open recheck", async move { open.run().await });
    tasks.spawn("change feed", async move { applier.run(changes).await });
    if store.feed().is_shared() {
        tasks.spawn("feed watch", feed_watch::run(store.clone(), gate.metrics.clone(), registry.clone()));
    }
    let watch = Arc::new(ClockWatch::new(&gate.clock));
    let rates = services.shared_rates.clone();
    tasks.spawn("clock watch", watch.clone().run(gate.clone(), registry.clone(), signin.clone(), rates.clone()));
    if keys.are_shared() {
        tasks.spawn("key changes", follow_key_changes(keys.clone()));
    }
    tasks.spawn("key expiry", end_sessions_of_expired_keys(keys.clone(), gate.clone(), recheck.clone(), watch.clone()));
    let Databases { store: writing_store, directory } = databases.clone();
    tasks.spawn("store", async move { writing_store.failure().await });
    tasks.spawn("directory", async move { directory.failure().await });
    tasks.spawn("sweep", sweep(store.clone(), gate.clone(), signin.clone(), rates.clone(), watch));
    if let Some(rates) = rates {
        tasks.spawn("rate leases", shared_rates::run(rates, store.clone()));
    }
    tasks.spawn("upstream names", upstreams::resolve::run(services.upstreams.clone()));
    tasks.spawn("upstream checks", upstreams::health::run(services.upstreams.clone()));
    if signin.recheck.is_on() {
        let signin = signin.clone();
        tasks.spawn("platform recheck", async move { signin.recheck.run().await });
    }
    tasks.spawn("reconciliation", reconcile(store.clone(), roles.clone(), primary_changed));
}

/// Applies every change event, including this process's own, to the session cache, what is open and the long polls. Waits for
/// nothing: while it does, a revocation would.
struct ChangeApplier {
    gate: Arc<Gate>,
    registry: Arc<Registry>,
    signin: Arc<SignInServices>,
    roles: Roles,
    recheck: Arc<OpenRecheck>,
    primary_changed: Arc<Notify>,
}

impl ChangeApplier {
    /// Returns only when the store has closed the change feed, which ends the process: see [`TaskSet`].
    async fn run(&self, mut changes: broadcast::Receiver<ChangeEvent>) {
        let _feed = FeedGauge::up(self.gate.metrics.clone());
        loop {
            match changes.recv().await {
                Ok(event) => self.apply(&event),
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(
                        missed,
                        "change feed lagged: dropping the session cache and rechecking everything open"
                    );
                    // Whatever was missed, another primary among it.
                    self.apply_change(&Change::PrimaryChanged);
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn apply(&self, event: &ChangeEvent) {
        match &event.change {
            Change::SessionEnded { .. } | Change::SessionChanged(_) | Change::TicketMoved(_) => {
                self.apply_change(&event.change);
                count_change(&self.gate, event);
            }
            Change::Missed(_) => self.apply_change(&event.change),
            Change::PrimaryChanged => {
                tracing::warn!(
                    "another server has become a primary of the store: comparing all sessions with the directory"
                );
                self.apply_change(&event.change);
            }
            // While something open may belong to a session that has ended, not everything is applied; the next read follows soon.
            Change::CaughtUp if self.recheck.is_done() => self.gate.sessions.store().feed().note_applied(event.at),
            Change::CaughtUp => {}
            Change::Unconfirmed => {
                tracing::error!("the Sentinels have not confirmed the primary of the store for store.outage_grace");
                self.gate.sessions.store().feed().note_unconfirmed();
                self.registry.close_signed_in(CloseReason::StoreLost);
            }
        }
    }

    /// Applies a change to the cache first, then to what is open.
    fn apply_change(&self, change: &Change) {
        let is_shared = self.gate.sessions.store().feed().is_shared();
        if matches!(change, Change::PrimaryChanged) && is_shared {
            // Before the cache is emptied: what is read from then on must be compared.
            self.roles.distrust_store();
            self.primary_changed.notify_one();
        }
        self.gate.sessions.apply_change(change);
        self.registry.apply_change(change);
        self.signin.apply_change(change);
        match change {
            Change::Missed(partition) => self.recheck([*partition]),
            Change::PrimaryChanged => self.recheck(Partition::all()),
            Change::SessionEnded { .. }
            | Change::SessionChanged(_)
            | Change::TicketMoved(_)
            | Change::CaughtUp
            | Change::Unconfirmed => {}
        }
    }

    fn recheck(&self, partitions: impl IntoIterator<Item = Partition>) {
        self.signin.wake_all_polls();
        self.recheck.request(partitions);
    }
}

/// Compares all sessions with the directory after the start, after another server has become a primary of the store, and
/// with a shared store now and then: another gateway may have died between its writes to the two.
async fn reconcile(store: Arc<dyn Store>, roles: Roles, primary_changed: Arc<Notify>) {
    let leases = store.leases();
    loop {
        roles.reconcile_all(&*leases).await;
        if store.feed().is_shared() {
            let _ = tokio::time::timeout(RECONCILIATION_INTERVAL, primary_changed.notified()).await;
        } else {
            primary_changed.notified().await;
        }
    }
}

fn count_change(gate: &Gate, event: &ChangeEvent) {
    if let Change::SessionEnded { cause, .. } = &event.change {
        gate.metrics.sessions_ended.with_label_values(&[cause.as_str()]).inc();
    }
    let delay = gate.clock.uptime().saturating_sub(event.at);
    gate.metrics.revocation_seconds.observe(delay.as_secs_f64());
}

/// Holds the gauge `revocation_feed_up` at 1; a panic of the task sets it to 0 as well.
struct FeedGauge(Arc<Metrics>);

impl FeedGauge {
    fn up(metrics: Arc<Metrics>) -> Self {
        metrics.revocation_feed_up.set(1);
        Self(metrics)
    }
}

impl Drop for FeedGauge {
    fn drop(&mut self) {
        self.0.revocation_feed_up.set(0);
    }
}

/// Uses the signing keys that other gateways add, and refuses those that they remove.
async fn follow_key_changes(keys: Arc<KeyRotation>) {
    let mut tick = tokio::time::interval(KEY_CHANGE_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut fails = false;
    loop {
        tick.tick().await;
        match keys.refresh().await {
            Ok(()) if fails => tracing::info!("the signing keys can be read again"),
            Err(error) if !fails => {
                let error = chain(&error);
                tracing::warn!(
                    error,
                    "cannot read the signing keys; those that are known stay in use until their time is over"
                );
            }
            Ok(()) | Err(_) => continue,
        }
        fails = !fails;
    }
}

/// Ends sessions, and what they have open, when the key that signed their token expires or is removed.
async fn end_sessions_of_expired_keys(
    keys: Arc<KeyRotation>,
    gate: Arc<Gate>,
    recheck: Arc<OpenRecheck>,
    watch: Arc<ClockWatch>,
) {
    loop {
        // First what is open: with many sessions it takes a while to end all of a removed key.
        recheck.check_all().await;
        // Also right after the start: an operator may have removed a key while the gateway was down.
        let update = keys.update_sessions();
        tokio::pin!(update);
        let mut keys_changed = false;
        // The update, or the wait for the gateway that does it, may take minutes.
        let updated = loop {
            tokio::select! {
                updated = &mut update => break updated,
                () = gate.tokens.keys_changed() => {
                    keys_changed = true;
                    recheck.check_all().await;
                }
            }
        };
        if keys_changed {
            continue;
        }
        if let Err(error) = updated {
            tracing::warn!(%error, "could not end the sessions of removed keys; their tokens are refused all the same");
            let _ = tokio::time::timeout(KEY_EXPIRY_INTERVAL, until_keys_change(&gate, &watch)).await;
            continue;
        }
        until_keys_change(&gate, &watch).await;
    }
}

/// Waits until a key expires by the wall clock, or the keys are replaced.
async fn until_keys_change(gate: &Gate, watch: &ClockWatch) {
    let mut now = gate.clock.now();
    while let Some(end) = gate.tokens.keys().next_end(now) {
        tokio::select! {
            () = tokio::time::sleep(now.until(end).min(KEY_EXPIRY_INTERVAL)) => {}
            () = watch.jumped() => {}
            () = gate.tokens.keys_changed() => return,
        }
        now = gate.clock.now();
        if now >= end {
            return;
        }
    }
    gate.tokens.keys_changed().await;
}

/// Removes expired records from memory, and from the store and the directory unless the clock has just jumped forward.
async fn sweep(
    store: Arc<dyn Store>,
    gate: Arc<Gate>,
    signin: Arc<SignInServices>,
    rates: Option<LeasedRates>,
    watch: Arc<ClockWatch>,
) {
    let mut tick = tokio::time::interval(SWEEP_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        gate.sessions.sweep(gate.clock.now()).await;
        gate.counters.sweep(gate.clock.running());
        if let Some(rates) = &rates {
            rates.sweep(gate.clock.running());
        }
        signin.sweep().await;
        if let Err(error) = gate.sessions.note_seen().await {
            tracing::warn!(%error, "could not write when sessions were last used; retrying in a minute");
        }
        if !watch.is_settled(&gate.clock) {
            continue;
        }
        signin.prune().await;
        if let Err(error) = store.sweep().await {
            tracing::warn!(%error, "could not remove expired records; retrying in a minute");
        }
    }
}

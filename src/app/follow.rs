//! What goes on beside requests: changes are heard, expired records are removed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::admin::keys::KeyRotation;
use crate::error::chain;
use crate::pipeline::Gate;
use crate::signin::Services;
use crate::signin::roles::Roles;
use crate::sockets::Ending;
use crate::sockets::registry::Registry;
use crate::store::{Change, ChangeEvent, Store};

/// How often space is given back; nothing depends on it.
const SWEEP: Duration = Duration::from_secs(60);

/// Takes in changes, those made here included, and passes them to whoever must act.
pub(super) async fn follow(
    mut changes: broadcast::Receiver<ChangeEvent>,
    gate: Arc<Gate>,
    registry: Arc<Registry>,
    signin: Arc<Services>,
) {
    gate.metrics.revocation_feed_up.set(1);
    loop {
        match changes.recv().await {
            Ok(told) => {
                gate.live.apply_change(&told.change);
                registry.apply_change(&told.change);
                signin.apply_change(&told.change);
                if let Change::SessionEnded { cause, .. } = &told.change {
                    gate.metrics.sessions_ended.with_label_values(&[cause.as_str()]).inc();
                }
                let took = told.at.until(gate.clock.now());
                gate.metrics.revocation_seconds.observe(took.as_secs_f64());
            }
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "changes were missed: everything is read again");
                gate.live.forget_all();
                signin.wake_all_polls();
                judge_all_sockets(&gate, &registry).await;
            }
            Err(RecvError::Closed) => break,
        }
    }
    gate.metrics.revocation_feed_up.set(0);
}

/// How long to wait before sessions are compared with the directory again, after that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// What was cut off between the directory and the sessions by a crash is made whole.
pub(super) async fn follow_directory(roles: Roles) {
    while let Err(error) = roles.sync_all_sessions().await {
        tracing::warn!(error = %chain(&error), "sessions could not be compared with the directory; trying again");
        tokio::time::sleep(AGAIN).await;
    }
}

/// Sessions end with the key that signed their token, and their sockets with them.
pub(super) async fn end_with_keys(keys: Arc<KeyRotation>, gate: Arc<Gate>, registry: Arc<Registry>) {
    loop {
        // At the start as well: keys may have been taken away meanwhile.
        if let Err(error) = keys.settle().await {
            tracing::warn!(%error, "sessions of keys that are gone could not be ended; their tokens are refused");
        }
        judge_all_sockets(&gate, &registry).await;
        let now = gate.clock.now();
        let next = gate.tokens.keys().next_end(now);
        let end = async {
            match next {
                Some(end) => tokio::time::sleep(now.until(end)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = end => {}
            () = gate.tokens.keys_changed() => {}
        }
    }
}

/// After missed changes or new rules every socket's session is looked at again. One that cannot be looked at ends.
pub(super) async fn judge_all_sockets(gate: &Gate, registry: &Registry) {
    for id in registry.sessions() {
        match gate.live.session(&id, gate.clock.now()).await {
            Ok(Some(known)) => registry.judge_again(&known.session),
            Ok(None) | Err(_) => registry.end_session(&id, Ending::Revoked),
        }
    }
}

pub(super) async fn sweep(store: Arc<dyn Store>, gate: Arc<Gate>, signin: Arc<Services>) {
    let mut tick = tokio::time::interval(SWEEP);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        gate.live.sweep(gate.clock.now());
        gate.counters.sweep(gate.clock.running());
        signin.sweep().await;
        let swept = match gate.live.note_seen().await {
            Ok(()) => store.sweep().await,
            failed => failed,
        };
        if let Err(error) = swept {
            tracing::warn!(%error, "expired records could not be removed");
        }
    }
}

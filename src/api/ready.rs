//! `GET /api/ready` and `/version`.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::config::Development;
use crate::domain::clock::Timestamp;
use crate::error::{Error, Part};
use crate::pipeline::Arrival;
use crate::reply::Reply;
use crate::signin::SignIn;

/// The state of this process that others ask about.
#[derive(Debug, Default)]
pub struct Operations {
    draining: AtomicBool,
}

impl Operations {
    /// From now on no new work should be sent here.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }
}

#[derive(Serialize)]
struct Parts {
    store: &'static str,
    directory: &'static str,
    gateway: &'static str,
    development: bool,
}

/// Each part's state; 503 when one of them keeps us from working.
pub async fn ready(operations: &Operations, signin: &SignIn, arrival: &Arrival) -> Reply {
    let store = signin.live().store().ready().await.is_ok();
    let directory = signin.directory().ready().await.is_ok();
    let draining = operations.draining.load(Ordering::Acquire);
    let word = |well: bool| if well { "ok" } else { "unavailable" };
    let parts = Parts {
        store: word(store),
        directory: word(directory),
        gateway: if draining { "draining" } else { "ok" },
        development: signin.settings().development == Development::On,
    };
    let failed = match (store, directory, draining) {
        (false, _, _) => Part::Store,
        (_, false, _) => Part::Directory,
        (_, _, true) => Part::Gateway,
        (true, true, false) => return Reply::data(arrival, &parts),
    };
    Reply::refusal_with(arrival, &Error::Unavailable { part: failed, cause: None }, Some(&parts))
}

/// What is running.
#[derive(Debug, Serialize)]
pub struct Version {
    name: &'static str,
    version: &'static str,
    commit: &'static str,
    built_at: String,
}

/// Tells what is running.
pub fn version() -> Version {
    let built = env!("DESKGATE_BUILT").parse().unwrap_or(0);
    Version {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("DESKGATE_COMMIT"),
        built_at: Timestamp::from_seconds(built).iso8601(),
    }
}

//! `GET /api/ready`

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::config::Development;
use crate::error::{Error, Part};
use crate::pipeline::Arrival;
use crate::reply::Reply;
use crate::signin::backends::Backends;

/// The state of this process that load balancers ask for.
pub struct Readiness {
    development: Development,
    draining: AtomicBool,
}

#[derive(Serialize)]
struct ReadyReport {
    store: &'static str,
    directory: &'static str,
    gateway: &'static str,
    development: bool,
}

impl Readiness {
    /// Ready until [`Readiness::drain`].
    pub fn new(development: Development) -> Self {
        Self { development, draining: AtomicBool::new(false) }
    }

    /// Reports 503 from now on, so that load balancers send no new requests.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }
}

/// The state of each part; 503 if one of them is unavailable.
pub async fn ready(readiness: &Readiness, backends: &Backends, arrival: &Arrival) -> Reply {
    let status = backends.status().await;
    let (store, directory) = (status.store.is_ok(), status.directory.is_ok());
    let draining = readiness.draining.load(Ordering::Acquire);
    let word = |ok: bool| if ok { "ok" } else { "unavailable" };
    let report = ReadyReport {
        store: word(store),
        directory: word(directory),
        gateway: if draining { "draining" } else { "ok" },
        development: readiness.development == Development::On,
    };
    let part = match (store, directory, draining) {
        (false, _, _) => Part::Store,
        (_, false, _) => Part::Directory,
        (_, _, true) => Part::Gateway,
        (true, true, false) => return Reply::data(arrival, &report),
    };
    Reply::refusal_with(arrival, &Error::Unavailable { part, cause: None }, Some(&report))
}

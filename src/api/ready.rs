//! `GET /api/ready`

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;

use crate::config::Development;
use crate::domain::clock::Clock;
use crate::error::{Error, Part};
use crate::pipeline::Arrival;
use crate::reply::Reply;
use crate::signin::backends::Backends;

/// How long the backends' state is reused: a flood of requests costs one check a second.
const STATE_LIFETIME: Duration = Duration::from_secs(1);

/// A backend that takes longer to answer is unavailable.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of this process that load balancers ask for.
pub struct Readiness {
    development: Development,
    draining: AtomicBool,
    clock: Clock,
    /// When the backends were asked, and their state. Locked while one request asks; the others wait for its result.
    checked: Mutex<Option<(Duration, BackendState)>>,
}

/// Whether each backend can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendState {
    /// Sessions and tickets.
    pub store: bool,
    /// Employees and roles.
    pub directory: bool,
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
    pub fn new(development: Development, clock: Clock) -> Self {
        Self { development, draining: AtomicBool::new(false), clock, checked: Mutex::new(None) }
    }

    /// The state of the last second, or a new one. A part that does not answer delays only itself.
    pub async fn backends(&self, backends: &Backends) -> BackendState {
        let check = async {
            let status = backends.status(CHECK_TIMEOUT).await;
            BackendState {
                store: matches!(status.store, Some(Ok(()))),
                directory: matches!(status.directory, Some(Ok(()))),
            }
        };
        self.state(check).await
    }

    /// The state of the last second, or a new one from `check`.
    async fn state(&self, check: impl Future<Output = BackendState>) -> BackendState {
        let mut checked = self.checked.lock().await;
        let now = self.clock.running();
        if let Some((at, state)) = *checked
            && now < at + STATE_LIFETIME
        {
            return state;
        }
        let state = check.await;
        *checked = Some((self.clock.running(), state));
        state
    }

    /// Whether load balancers are told to send no new requests.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Reports 503 from now on, so that load balancers send no new requests.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }
}

/// The state of each part; 503 if one of them is unavailable.
pub async fn ready(readiness: &Readiness, backends: &Backends, arrival: &Arrival) -> Reply {
    let BackendState { store, directory } = readiness.backends(backends).await;
    let draining = readiness.is_draining();
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

#[cfg(test)]
mod tests;

//! A simulated messaging platform: a real HTTP server that speaks WeCom's API.
//!
//! It is for development and tests. Clients made for WeCom work with it unchanged: same paths, same
//! keys, HTTP 200 with `errcode` in the body. Time comes from a [`Clock`], so codes and tokens age
//! when a test says so.
//!
//! What the platform does on a bad day is in [`Switches`]: set from Rust with
//! [`SimulatedPlatform::switches`], or over HTTP under `/simulator`, which has a page for people. That
//! part asks for no credentials: whoever starts this server must listen on loopback only.
//!
//! Facts that no public source tells were decided so: a refused exchange (50001, stale token) leaves the
//! code unspent; a scanned code of the hosted sign-in page lives for five minutes; the platform's error
//! pages are HTTP 400.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use url::Url;

use crate::domain::clock::Clock;
use ledger::Ledger;

pub mod path;

mod routes;

mod trouble;

mod query;

mod authorize;

mod hosted;

mod back;

mod trust;

mod pages;

mod api;

mod refusal;

mod control;

mod switches;

mod ledger;

mod members;

pub use members::{AGENT_ID, CORP_ID, Member, MemberKind, PARTNER_CORP_ID, SECRET, members};
pub use switches::{Kind, StaleErrcode, Switches, Times};

/// How long open connections are waited for when it ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// What all requests share.
#[derive(Clone)]
struct Shared(Arc<State>);

struct State {
    ledger: Mutex<Ledger>,
    /// Told whenever a scanned code may have another status: its pollers look again.
    changed: Notify,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running simulated platform; it ends when this is dropped.
pub struct SimulatedPlatform {
    address: SocketAddr,
    shared: Shared,
    end: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl SimulatedPlatform {
    /// Starts one. Port 0 picks a free port.
    pub async fn start(listen: SocketAddr, clock: Clock) -> std::io::Result<SimulatedPlatform> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let ledger = Mutex::new(Ledger::new(clock, format!("http://{address}")));
        let shared = Shared(Arc::new(State { ledger, changed: Notify::new() }));
        let service = routes::router(shared.clone()).into_make_service_with_connect_info::<SocketAddr>();
        let (end, ended) = oneshot::channel::<()>();
        let server = axum::serve(listener, service)
            // A dropped sender ends the server just like a message.
            .with_graceful_shutdown(async { _ = ended.await });
        Ok(SimulatedPlatform { address, shared, end, server: tokio::spawn(server.into_future()) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where browsers are sent, for `platform.authorize_url`.
    pub fn authorize_url(&self) -> Url {
        self.url(path::AUTHORIZE)
    }

    /// The server API, for `platform.api_url`.
    pub fn api_url(&self) -> Url {
        self.url("/")
    }

    /// The page for people: the switches and how to set them.
    pub fn control_url(&self) -> Url {
        self.url(path::CONTROL)
    }

    /// How often a path was called.
    pub fn calls(&self, path: &str) -> u64 {
        self.shared.ledger().calls.of(path)
    }

    /// Takes all application tokens back, as the platform may at any time.
    pub fn withdraw_tokens(&self) {
        self.shared.ledger().tokens.withdraw();
    }

    /// Reads or sets switches; what holds afterwards holds from the next call on.
    pub fn switches<T>(&self, change: impl FnOnce(&mut Switches) -> T) -> T {
        self.shared.ledger().switch(change)
    }

    /// Lets our application trust these domains and no others; the corporation's other one trusts none.
    pub fn trust(&self, domains: &[&str]) {
        let domains = domains.iter().map(|&domain| domain.to_owned()).collect();
        self.switches(|switches| switches.trusted_domains = [(AGENT_ID.to_owned(), domains)].into());
    }

    /// Ends it and waits until its port is free again.
    pub async fn stop(mut self) {
        _ = self.end.send(());
        if tokio::time::timeout(PATIENCE, &mut self.server).await.is_err() {
            // Somebody keeps a request open: the listener is closed already, the rest goes with the process.
            self.server.abort();
        }
    }

    #[allow(clippy::expect_used)]
    fn url(&self, path: &str) -> Url {
        // A socket address always makes a host and a port.
        Url::parse(&format!("http://{}{path}", self.address)).expect("a socket address is a host and port")
    }
}

#[cfg(test)]
mod tests;

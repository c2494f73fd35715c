//! A simulated messaging platform: a real HTTP server that speaks WeCom's API.
//!
//! It is for development and tests. Clients made for WeCom work with it unchanged: same paths, same
//! keys, HTTP 200 with `errcode` in the body. Time comes from a [`Clock`], so codes and tokens age
//! when a test says so.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use url::Url;

use crate::domain::clock::Clock;
use ledger::{App, Ledger};

mod api;

mod authorize;

mod ledger;

mod members;

mod query;

pub use members::{CORP_ID, Member, MemberKind, members};

/// The application's `agentid`.
pub const AGENT_ID: &str = "1000002";

/// The application's secret.
pub const SECRET: &str = "simulated-secret-of-the-help-desk";

/// The corporation's applications: ours, and one whose codes and tokens are not ours.
static APPS: [App; 2] = [
    App { agent_id: AGENT_ID, secret: SECRET },
    App { agent_id: "1000003", secret: "simulated-secret-of-another-application" },
];

/// How long open connections are waited for when it ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// The paths that it serves; also what calls are counted by.
pub mod path {
    /// The page that a browser or phone is sent to.
    pub const AUTHORIZE: &str = "/connect/oauth2/authorize";
    /// The application's token.
    pub const TOKEN: &str = "/cgi-bin/gettoken";
    /// A code to a person.
    pub const USER_INFO: &str = "/cgi-bin/auth/getuserinfo";
    /// The same in the older form.
    pub const LEGACY_USER_INFO: &str = "/cgi-bin/user/getuserinfo";
    /// A member's profile.
    pub const USER: &str = "/cgi-bin/user/get";
    /// A department's name.
    pub const DEPARTMENT: &str = "/cgi-bin/department/get";
}

/// What all requests share.
#[derive(Clone)]
struct Shared(Arc<Mutex<Ledger>>);

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let shared = Shared(Arc::new(Mutex::new(Ledger::new(clock))));
        let router = Router::new()
            .route(path::AUTHORIZE, get(authorize::page))
            .route(path::TOKEN, get(api::token))
            .route(path::USER_INFO, get(api::user_info))
            .route(path::LEGACY_USER_INFO, get(api::legacy_user_info))
            .route(path::USER, get(api::user))
            .route(path::DEPARTMENT, get(api::department))
            .with_state(shared.clone());
        let (end, ended) = oneshot::channel::<()>();
        let server = axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>())
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

    /// How often a path was called.
    pub fn calls(&self, path: &str) -> u64 {
        self.shared.ledger().calls(path)
    }

    /// Takes all application tokens back, as the platform may at any time.
    pub fn withdraw_tokens(&self) {
        self.shared.ledger().withdraw_tokens();
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

//! The simulated platform's HTTP server: routes, start and stop, and the middleware that counts each call and
//! injects the faults that the switches plan: delays, 502s and error codes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use url::Url;

use super::api::{self, BUSY, SimulatedError, TOO_FREQUENT, contacts};
use super::link::Parameters;
use super::members::AGENT_ID;
use super::state::{PlatformState, SharedState};
use super::switches::Switches;
use super::{authorize, control, hosted, path};
use crate::domain::clock::Clock;

/// How long [`SimulatedPlatform::stop`] waits for open requests.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The page of a proxy in front of a dead server.
const BAD_GATEWAY: &str =
    "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>";

/// A running simulated platform; dropping it stops the server.
pub struct SimulatedPlatform {
    address: SocketAddr,
    state: SharedState,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl SimulatedPlatform {
    /// Starts the server. Port 0 picks a free port. The control interface has no authentication, so `listen`
    /// must be a loopback address.
    pub async fn start(listen: SocketAddr, clock: Clock) -> std::io::Result<SimulatedPlatform> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let state = SharedState::new(PlatformState::new(clock, format!("http://{address}")));
        let service = router(state.clone()).into_make_service_with_connect_info::<SocketAddr>();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, service)
            // A dropped sender stops the server just like a message.
            .with_graceful_shutdown(async { _ = stopped.await });
        Ok(SimulatedPlatform { address, state, stop, server: tokio::spawn(server.into_future()) })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authorize page, for `platform.authorize_url`.
    pub fn authorize_url(&self) -> Url {
        self.url(path::AUTHORIZE)
    }

    /// The server API, for `platform.api_url`.
    pub fn api_url(&self) -> Url {
        self.url("/")
    }

    /// The control page.
    pub fn control_url(&self) -> Url {
        self.url(path::CONTROL)
    }

    /// The number of calls to a path.
    pub fn calls(&self, path: &str) -> u64 {
        self.state.lock().calls.of(path)
    }

    /// Revokes all application tokens, as the platform may at any time.
    pub fn revoke_tokens(&self) {
        self.state.lock().tokens.revoke_all();
    }

    /// Reads or changes switches; a change applies from the next call.
    pub fn switches<T>(&self, change: impl FnOnce(&mut Switches) -> T) -> T {
        self.state.lock().update_switches(change)
    }

    /// Makes these the only trusted domains of our application; the corporation's other application trusts none.
    pub fn trust(&self, domains: &[&str]) {
        let domains = domains.iter().map(|&domain| domain.to_owned()).collect();
        self.switches(|switches| switches.trusted_domains = [(AGENT_ID.to_owned(), domains)].into());
    }

    /// Stops the server and waits until its port is free.
    pub async fn stop(mut self) {
        _ = self.stop.send(());
        if tokio::time::timeout(STOP_TIMEOUT, &mut self.server).await.is_err() {
            // A client keeps a request open. The listener is closed already.
            self.server.abort();
        }
    }

    #[allow(clippy::expect_used)]
    fn url(&self, path: &str) -> Url {
        // A socket address is always a valid host and port.
        Url::parse(&format!("http://{}{path}", self.address)).expect("a socket address is a host and port")
    }
}

/// Builds all routes. Faults are not injected into `/simulator` paths, so that the switches can always be reset.
fn router(state: SharedState) -> Router {
    let inject_faults = from_fn_with_state(state.clone(), inject);
    api_routes().merge(page_routes()).route_layer(inject_faults).merge(control_routes()).with_state(state)
}

fn api_routes() -> Router<SharedState> {
    Router::new()
        .route(path::TOKEN, api::on_get(api::issue_token))
        .route(path::USER_INFO, api::on_get(api::user_info))
        .route(path::LEGACY_USER_INFO, api::on_get(api::legacy_user_info))
        .route(path::USER_DETAIL, api::on_post(api::user_detail))
        .route(path::USER, api::on_get(contacts::user))
        .route(path::USER_SIMPLE_LIST, api::on_get(contacts::user_simple_list))
        .route(path::USER_LIST, api::on_get(contacts::user_list))
        .route(path::DEPARTMENT, api::on_get(contacts::department))
        .route(path::DEPARTMENT_LIST, api::on_get(contacts::department_list))
        .route(path::DEPARTMENT_SIMPLE_LIST, api::on_get(contacts::department_simple_list))
        .route(path::LINKED_USER, api::on_post(contacts::linked_user))
        .route(path::DOWNSTREAM_TOKEN, api::on_post(contacts::issue_downstream_token))
        .route(path::SHARED_WITH, api::on_post(contacts::shared_with))
        .route(path::CALLBACK_ADDRESSES, api::on_get(api::addresses))
        .route(path::API_ADDRESSES, api::on_get(api::addresses))
}

fn page_routes() -> Router<SharedState> {
    Router::new()
        .route(path::AUTHORIZE, get(authorize::page))
        .route(path::URI_CONFIRM, get(authorize::untrusted_domain))
        .route(path::QR_CONNECT, get(hosted::legacy_page))
        .route(path::QR_LOGIN, get(hosted::page))
        .route(path::QR_POLL, get(hosted::poll))
        .route(path::QR_IMAGE, get(hosted::image))
        .route(path::QR_CONFIRM, get(hosted::confirm))
}

fn control_routes() -> Router<SharedState> {
    Router::new()
        .route(path::CONTROL, get(control::page))
        .route("/simulator/switches", get(control::show))
        .route("/simulator/switches", patch(control::patch))
        .route("/simulator/switches", post(control::set_one))
        .route("/simulator/switches", delete(control::reset))
        .route("/simulator/switches/reset", post(control::reset))
        .route("/simulator/clock", post(control::advance_clock))
        .route("/simulator/tokens/revoke", post(control::revoke_tokens))
        .route("/simulator/calls", get(control::calls))
        .route("/simulator/avatars/{userid}", get(control::avatar))
}

/// A response that replaces the path's own.
enum InjectedFault {
    BadGateway,
    SimulatedError(SimulatedError),
}

/// Wraps every path of the platform. The state is not locked during a delay.
async fn inject(
    State(state): State<SharedState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let (delay, fault) = plan(&mut state.lock(), &request);
    if let Some(delay) = delay {
        tokio::time::sleep(delay).await;
    }
    match fault {
        None => next.run(request).await,
        Some(InjectedFault::BadGateway) => (StatusCode::BAD_GATEWAY, Html(BAD_GATEWAY)).into_response(),
        Some(InjectedFault::SimulatedError(errcode)) => errcode.response(state.lock().now(), peer.ip()),
    }
}

/// Counts the call and decides its delay and fault.
fn plan(state: &mut PlatformState, request: &Request) -> (Option<Duration>, Option<InjectedFault>) {
    // No route of the platform has a variable part, so the path is the route.
    let path = request.uri().path();
    state.calls.record(path);
    let delay = state.switches.delay(path);
    let fault = if state.switches.take_bad_gateway(path) {
        Some(InjectedFault::BadGateway)
    } else if path::API.contains(&path) && is_too_frequent(state, path, request) {
        Some(InjectedFault::SimulatedError(TOO_FREQUENT))
    } else if state.switches.take_busy(path) {
        Some(InjectedFault::SimulatedError(BUSY))
    } else {
        None
    };
    (delay, fault)
}

/// Applies `frequency_limit`. WeCom exempts the exchange of a valid code, so that all employees can sign in at once.
fn is_too_frequent(state: &mut PlatformState, path: &str, request: &Request) -> bool {
    let Some(limit) = state.switches.frequency_limit else { return false };
    let now = state.now();
    let is_valid = |code: &str| state.codes.is_valid(code, now);
    if path == path::USER_INFO && Parameters::of(request.uri()).get("code").is_some_and(is_valid) {
        return false;
    }
    state.calls.exceeds(path, limit, now)
}

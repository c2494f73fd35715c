//! Middleware that counts each call and injects the faults that the switches plan: delays, 502s and error codes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use super::errcode::{BUSY, SimulatedError, TOO_FREQUENT};
use super::path;
use super::query::Parameters;
use super::state::{PlatformState, SharedState};

/// The page of a proxy in front of a dead server.
const BAD_GATEWAY: &str =
    "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>";

/// A response that replaces the path's own.
enum InjectedFault {
    BadGateway,
    SimulatedError(SimulatedError),
}

/// Wraps every path of the platform. The state is not locked during a delay.
pub async fn inject(
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

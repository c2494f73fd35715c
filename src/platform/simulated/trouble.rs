//! What happens to a call before it is answered: it is counted, and the switches may hold it back, break
//! it or refuse it. The ledger's lock is never held while an answer is held back.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use super::ledger::Ledger;
use super::query::Parameters;
use super::refusal::{BUSY, Refusal, TOO_FREQUENT};
use super::{Shared, path};

/// What a proxy in front of a dead server says.
const BAD_GATEWAY: &str =
    "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>";

/// What befalls a call.
enum Fate {
    GoesOn,
    Broken,
    Refused(Refusal),
}

/// Around every path of the platform.
pub async fn befall(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let (delay, fate) = foresee(&mut shared.ledger(), &request);
    if let Some(delay) = delay {
        tokio::time::sleep(delay).await;
    }
    match fate {
        Fate::GoesOn => next.run(request).await,
        Fate::Broken => (StatusCode::BAD_GATEWAY, Html(BAD_GATEWAY)).into_response(),
        Fate::Refused(refusal) => refusal.answer(shared.ledger().now(), peer.ip()),
    }
}

fn foresee(ledger: &mut Ledger, request: &Request) -> (Option<Duration>, Fate) {
    // No path of the platform has a variable part: what was matched is what was asked for.
    let path = request.uri().path();
    ledger.calls.count(path);
    let delay = ledger.switches.delay(path);
    let fate = if ledger.switches.meets_bad_gateway(path) {
        Fate::Broken
    } else if path::API.contains(&path) && too_frequent(ledger, path, request) {
        Fate::Refused(TOO_FREQUENT)
    } else if ledger.switches.meets_busy(path) {
        Fate::Refused(BUSY)
    } else {
        Fate::GoesOn
    };
    (delay, fate)
}

/// The limit does not concern the exchange of a good code: everybody may sign in at nine o'clock.
fn too_frequent(ledger: &mut Ledger, path: &str, request: &Request) -> bool {
    let Some(limit) = ledger.switches.frequency_limit else { return false };
    let now = ledger.now();
    let good = |code: &str| ledger.codes.is_good(code, now);
    if path == path::USER_INFO && Parameters::of(request.uri()).get("code").is_some_and(good) {
        return false;
    }
    ledger.calls.exceeds(path, limit, now)
}

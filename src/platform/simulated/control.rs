//! The switches over HTTP: JSON for programs, a page with forms for people.
//!
//! Nobody is asked who they are: the server listens on loopback. But a web page from elsewhere can make
//! a browser on this machine send a form, so what changes something refuses a foreign `Origin`.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::{Map, Value, json};

use super::switches::{Fault, Switches};
use super::{Shared, members, path};

mod page;

pub use page::page;

/// The farthest that the clock goes at once; beyond, moments could no longer be told apart.
const LONGEST_ADVANCE: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// What was sent to change something.
pub enum Change {
    /// By a program.
    Json(Map<String, Value>),
    /// By a form of the page.
    Form(Vec<(String, String)>),
}

impl Change {
    fn field(&self, name: &str) -> Option<&str> {
        match self {
            Change::Json(_) => None,
            Change::Form(fields) => fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()),
        }
    }

    /// What the sender sees when it is done: a program the new state, a person the page again.
    fn done(&self, state: Value) -> Response {
        match self {
            Change::Json(_) => Json(state).into_response(),
            Change::Form(_) => Redirect::to(path::CONTROL).into_response(),
        }
    }
}

impl FromRequest<Shared> for Change {
    type Rejection = Response;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Response> {
        if is_foreign(request.headers()) {
            return Err((StatusCode::FORBIDDEN, "not from another site\n").into_response());
        }
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let form = kind.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
        let body = Bytes::from_request(request, shared).await.map_err(IntoResponse::into_response)?;
        // A terminal's `curl -d` calls JSON a form.
        if form && body.first() != Some(&b'{') {
            return Ok(Change::Form(url::form_urlencoded::parse(&body).into_owned().collect()));
        }
        if body.is_empty() {
            return Ok(Change::Json(Map::new()));
        }
        serde_json::from_slice(&body)
            .map(Change::Json)
            .map_err(|error| fault("(body)", &error.to_string(), "a JSON object"))
    }
}

fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    text(header::ORIGIN)
        .is_some_and(|origin| origin.strip_prefix("http://") != Some(text(header::HOST).unwrap_or_default()))
}

fn fault(switch: &str, why: &str, allowed: &str) -> Response {
    faults(&[Fault { switch: switch.to_owned(), why: why.to_owned(), allowed: allowed.to_owned() }])
}

fn faults(faults: &[Fault]) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "faults": faults }))).into_response()
}

fn state(switches: &Switches) -> Value {
    serde_json::to_value(switches).unwrap_or_default()
}

/// `GET /simulator/switches`
pub async fn show(State(shared): State<Shared>) -> Json<Value> {
    Json(state(&shared.ledger().switches))
}

/// `PATCH /simulator/switches`: a merge patch. All of it, or nothing and every fault.
pub async fn merge(State(shared): State<Shared>, change: Change) -> Response {
    let Change::Json(patch) = &change else {
        return fault("(body)", "this is a form", "a JSON object");
    };
    let mut ledger = shared.ledger();
    match ledger.switches.merged(patch) {
        Ok(switches) => {
            ledger.switch(|current| *current = switches);
            change.done(state(&ledger.switches))
        }
        Err(found) => faults(&found),
    }
}

/// `POST /simulator/switches`: one switch from the page, its value as JSON. From a program it is what
/// PATCH is.
pub async fn set_one(State(shared): State<Shared>, change: Change) -> Response {
    if let Change::Json(_) = change {
        return merge(State(shared), change).await;
    }
    let name = change.field("name").unwrap_or_default().to_owned();
    let value = change.field("value").unwrap_or_default();
    let mut ledger = shared.ledger();
    let value = match serde_json::from_str::<Value>(if value.is_empty() { "null" } else { value }) {
        Ok(value) => value,
        // Said in the words of the switch, not in those of a parser.
        Err(_) => Value::String(value.to_owned()),
    };
    // A person sees and sets the whole value: what they removed from it is gone.
    let cleared = ledger.switches.merged(&Map::from_iter([(name.clone(), Value::Null)]));
    match cleared.and_then(|switches| switches.merged(&Map::from_iter([(name, value)]))) {
        Ok(switches) => {
            ledger.switch(|current| *current = switches);
            change.done(state(&ledger.switches))
        }
        Err(found) => page::render(&ledger, &found),
    }
}

/// `DELETE /simulator/switches`, and from the page `POST /simulator/switches/reset`
pub async fn reset(State(shared): State<Shared>, change: Change) -> Response {
    let mut ledger = shared.ledger();
    ledger.switch(|current| *current = Switches::default());
    change.done(state(&ledger.switches))
}

/// `POST /simulator/clock`. Forward only: what has aged stays old.
pub async fn advance(State(shared): State<Shared>, change: Change) -> Response {
    const NAME: &str = "advance_seconds";
    let seconds = match &change {
        Change::Json(fields) => fields.get(NAME).and_then(Value::as_u64),
        Change::Form(_) => change.field(NAME).and_then(|text| text.parse().ok()),
    };
    let span = seconds.map(Duration::from_secs).filter(|span| *span <= LONGEST_ADVANCE);
    let Some(span) = span else {
        return fault(NAME, "it is missing, no number or too large", "a whole number of seconds, up to ten years");
    };
    let now = {
        let ledger = shared.ledger();
        ledger.clock().advance(span);
        ledger.now()
    };
    // A scanned code may have grown too old.
    shared.0.changed.notify_waiters();
    change.done(json!({ "now": now.iso8601() }))
}

/// `POST /simulator/tokens/revoke`
pub async fn revoke(State(shared): State<Shared>, change: Change) -> Response {
    shared.ledger().tokens.withdraw();
    change.done(json!({ "revoked": true }))
}

/// `GET /simulator/calls`: how often each path was called.
pub async fn calls(State(shared): State<Shared>) -> Json<Value> {
    Json(json!(shared.ledger().calls.all()))
}

/// `GET /simulator/avatars/…`: a picture for profiles that have one.
pub async fn avatar(Path(userid): Path<String>) -> Response {
    let Some(member) = members().iter().find(|member| member.userid == userid) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let initial: String = member.name.chars().take(1).collect();
    let picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 96 96\"><rect width=\"96\" height=\"96\" rx=\"24\" \
         fill=\"#0b6b5d\"/><text x=\"48\" y=\"64\" font-size=\"44\" font-family=\"sans-serif\" text-anchor=\"middle\" \
         fill=\"#fff\">{initial}</text></svg>"
    );
    ([(header::CONTENT_TYPE, "image/svg+xml")], picture).into_response()
}

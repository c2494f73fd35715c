//! The switches over HTTP: JSON for programs and a page with forms for people.
//!
//! There is no authentication, because the server listens on loopback only. A page of another site can still make
//! a local browser submit a form, so every change rejects a foreign `Origin`.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use minijinja::context;
use serde_json::{Map, Value, json};

use super::members::members;
use super::state::{PlatformState, SharedState};
use super::switch_patch::{SWITCHES, SwitchFault, SwitchInfo, SwitchInput};
use super::switches::Switches;
use super::{pages, path};

/// The longest step of the clock; far larger ones would overflow timestamps.
const LONGEST_ADVANCE: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// The body of a request that changes something.
pub enum ControlRequest {
    /// From a program.
    Json(Map<String, Value>),
    /// From a form of the control page.
    Form(Vec<(String, String)>),
}

impl ControlRequest {
    fn field(&self, name: &str) -> Option<&str> {
        match self {
            ControlRequest::Json(_) => None,
            ControlRequest::Form(fields) => fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()),
        }
    }

    /// Responds to a program with the new state, and redirects a form to the control page.
    fn respond(&self, new_state: Value) -> Response {
        match self {
            ControlRequest::Json(_) => Json(new_state).into_response(),
            ControlRequest::Form(_) => Redirect::to(path::CONTROL).into_response(),
        }
    }
}

impl FromRequest<SharedState> for ControlRequest {
    type Rejection = Response;

    async fn from_request(request: Request, state: &SharedState) -> Result<Self, Response> {
        if has_foreign_origin(request.headers()) {
            return Err((StatusCode::FORBIDDEN, "requests from other sites are not allowed\n").into_response());
        }
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_form = kind.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
        let body = Bytes::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        // `curl -d` labels JSON as a form too.
        if is_form && body.first() != Some(&b'{') {
            return Ok(ControlRequest::Form(url::form_urlencoded::parse(&body).into_owned().collect()));
        }
        if body.is_empty() {
            return Ok(ControlRequest::Json(Map::new()));
        }
        serde_json::from_slice(&body)
            .map(ControlRequest::Json)
            .map_err(|error| bad_value("(body)", &error.to_string(), "a JSON object"))
    }
}

fn has_foreign_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    text(header::ORIGIN)
        .is_some_and(|origin| origin.strip_prefix("http://") != Some(text(header::HOST).unwrap_or_default()))
}

fn bad_value(switch: &str, why: &str, allowed: &str) -> Response {
    bad_values(&[SwitchFault { switch: switch.to_owned(), why: why.to_owned(), allowed: allowed.to_owned() }])
}

fn bad_values(faults: &[SwitchFault]) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "faults": faults }))).into_response()
}

fn to_json(switches: &Switches) -> Value {
    serde_json::to_value(switches).unwrap_or_default()
}

/// `GET /simulator/switches`
pub async fn show(State(state): State<SharedState>) -> Json<Value> {
    Json(to_json(&state.lock().switches))
}

/// `PATCH /simulator/switches`: applies a merge patch completely, or reports every fault.
pub async fn patch(State(state): State<SharedState>, request: ControlRequest) -> Response {
    let ControlRequest::Json(patch) = &request else {
        return bad_value("(body)", "this is a form", "a JSON object");
    };
    let mut state = state.lock();
    match state.switches.merged(patch) {
        Ok(switches) => {
            state.update_switches(|current| *current = switches);
            request.respond(to_json(&state.switches))
        }
        Err(faults) => bad_values(&faults),
    }
}

/// `POST /simulator/switches`: sets one switch from the page, with its value as JSON. A program's POST is a PATCH.
pub async fn set_one(State(state): State<SharedState>, request: ControlRequest) -> Response {
    if let ControlRequest::Json(_) = request {
        return patch(State(state), request).await;
    }
    let name = request.field("name").unwrap_or_default().to_owned();
    let value = request.field("value").unwrap_or_default();
    let mut state = state.lock();
    let value = match serde_json::from_str::<Value>(if value.is_empty() { "null" } else { value }) {
        Ok(value) => value,
        // As a string it fails with the switch's own message instead of a JSON parser's.
        Err(_) => Value::String(value.to_owned()),
    };
    // The form shows the whole value, so an entry that was deleted there must go: reset first, then merge.
    let cleared = state.switches.merged(&Map::from_iter([(name.clone(), Value::Null)]));
    match cleared.and_then(|switches| switches.merged(&Map::from_iter([(name, value)]))) {
        Ok(switches) => {
            state.update_switches(|current| *current = switches);
            request.respond(to_json(&state.switches))
        }
        Err(faults) => render(&state, &faults),
    }
}

/// `DELETE /simulator/switches`, and from the page `POST /simulator/switches/reset`
pub async fn reset(State(state): State<SharedState>, request: ControlRequest) -> Response {
    let mut state = state.lock();
    state.update_switches(|current| *current = Switches::default());
    request.respond(to_json(&state.switches))
}

/// `POST /simulator/clock`. The clock moves forward only.
pub async fn advance_clock(State(state): State<SharedState>, request: ControlRequest) -> Response {
    const NAME: &str = "advance_seconds";
    let seconds = match &request {
        ControlRequest::Json(fields) => fields.get(NAME).and_then(Value::as_u64),
        ControlRequest::Form(_) => request.field(NAME).and_then(|text| text.parse().ok()),
    };
    let step = seconds.map(Duration::from_secs).filter(|step| *step <= LONGEST_ADVANCE);
    let Some(step) = step else {
        return bad_value(
            NAME,
            "it is missing, not a number or too large",
            "a whole number of seconds, up to ten years",
        );
    };
    let now = {
        let state = state.lock();
        state.clock().advance(step);
        state.now()
    };
    // A scan may have expired.
    state.scan_changed().notify_waiters();
    request.respond(json!({ "now": now.iso8601() }))
}

/// `POST /simulator/tokens/revoke`
pub async fn revoke_tokens(State(state): State<SharedState>, request: ControlRequest) -> Response {
    state.lock().tokens.revoke_all();
    request.respond(json!({ "revoked": true }))
}

/// `GET /simulator/calls`: the number of calls per path.
pub async fn calls(State(state): State<SharedState>) -> Json<Value> {
    Json(json!(state.lock().calls.all()))
}

/// `GET /simulator/avatars/…`: the picture in a profile.
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

/// `GET /simulator`: the control page.
pub async fn page(State(state): State<SharedState>) -> Response {
    render(&state.lock(), &[])
}

/// Renders the control page, with the values that were rejected.
fn render(state: &PlatformState, faults: &[SwitchFault]) -> Response {
    let (current, default) = (to_json(&state.switches), to_json(&Switches::default()));
    let field = |info: &SwitchInfo| form_field(info, &current[info.name], &default[info.name]);
    let fault = |fault: &SwitchFault| {
        context! { switch => &*fault.switch, why => &*fault.why, allowed => &*fault.allowed }
    };
    let calls = path::API.iter().chain(&path::PAGES).map(|path| (*path, state.calls.of(path)));
    let calls = calls.filter(|(_, count)| *count > 0).map(|(path, count)| context! { path, count });
    let values = context! {
        faults => faults.iter().map(fault).collect::<Vec<_>>(),
        switches => SWITCHES.iter().map(field).collect::<Vec<_>>(),
        now => state.now().iso8601(),
        calls => calls.collect::<Vec<_>>(),
        origin => &*state.origin,
    };
    let status = if faults.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    pages::with_own_forms(status, "control.html", values)
}

/// The values of one switch's form. Each switch has its own form, so that the page needs no script.
fn form_field(info: &SwitchInfo, current: &Value, default: &Value) -> minijinja::Value {
    let (options, example): (&[&str], &str) = match info.input {
        SwitchInput::Toggle => (&["true", "false"], ""),
        SwitchInput::OneOf(values) => (values, ""),
        SwitchInput::Number => (&[], ""),
        SwitchInput::Json(example) => (&[], example),
    };
    context! {
        name => info.name,
        effect => info.effect,
        allowed => info.allowed,
        options => options.to_vec(),
        example,
        value => current.to_string(),
        is_set => current != default,
    }
}

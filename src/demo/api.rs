//! The server API: application tokens and the exchange of a code for a person. Every response is HTTP 200 with
//! the result in `errcode`. Clients branch on the number and must not depend on the text.

use std::net::{IpAddr, SocketAddr};

use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde_json::{Value, json};

use super::link::Parameters;
use super::members::{APPLICATIONS, Application, CORP_ID, EffectiveMember, MemberKind};
use super::state::credentials::{AuthorizeScope, TokenHolder, TokenState, USER_TICKET_LIFETIME, UserTicketState};
use super::state::{PlatformState, SharedState};
use super::switches::StaleErrcode;
use crate::domain::clock::Timestamp;
use crate::domain::secret::random_below;

pub mod contacts;

/// A number and text of the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulatedError(pub i64, pub &'static str);

// The texts come from public samples where there are any and are paraphrased otherwise.

pub const BUSY: SimulatedError = SimulatedError(-1, "system busy");
pub const INVALID_CREDENTIAL: SimulatedError = SimulatedError(40001, "invalid credential");
pub const INVALID_USERID: SimulatedError = SimulatedError(40003, "invalid userid");
pub const INVALID_CORPID: SimulatedError = SimulatedError(40013, "invalid corpid");
pub const INVALID_TOKEN: SimulatedError = SimulatedError(40014, "invalid access_token");
pub const INVALID_CODE: SimulatedError = SimulatedError(40029, "invalid code");
pub const INVALID_AGENTID: SimulatedError = SimulatedError(40056, "invalid agentid");
pub const INVALID_PARAMETER: SimulatedError = SimulatedError(40058, "invalid parameter");
pub const TOKEN_MISSING: SimulatedError = SimulatedError(41001, "access_token missing");
pub const CORPID_MISSING: SimulatedError = SimulatedError(41002, "corpid missing");
pub const SECRET_MISSING: SimulatedError = SimulatedError(41004, "secret missing");
pub const CODE_MISSING: SimulatedError = SimulatedError(41008, "missing code");
pub const USERID_MISSING: SimulatedError = SimulatedError(41009, "missing userid");
pub const AGENTID_MISSING: SimulatedError = SimulatedError(41011, "missing agentid");
pub const TOKEN_EXPIRED: SimulatedError = SimulatedError(42001, "access_token expired");
pub const TOO_FREQUENT: SimulatedError = SimulatedError(45009, "api freq out of limit");
pub const NOT_JSON: SimulatedError = SimulatedError(47001, "data format error");
pub const API_FORBIDDEN: SimulatedError = SimulatedError(48002, "api forbidden");
pub const DOMAIN_NOT_TRUSTED: SimulatedError = SimulatedError(50001, "redirect_uri unauthorized");
pub const MEMBER_OUT_OF_RANGE: SimulatedError = SimulatedError(50002, "member out of range");
pub const DEPARTMENT_NOT_FOUND: SimulatedError = SimulatedError(60003, "department not found");
pub const NO_PRIVILEGE: SimulatedError = SimulatedError(60011, "no privilege to access/modify contact/party/agent");
pub const ADDRESS_NOT_ALLOWED: SimulatedError = SimulatedError(60020, "not allow to access from your ip");
pub const USERID_OUT_OF_RANGE: SimulatedError = SimulatedError(60021, "userid out of range");
pub const USERID_NOT_FOUND: SimulatedError = SimulatedError(60111, "userid not found");
pub const USER_TICKET_EXPIRED: SimulatedError = SimulatedError(84014, "user_ticket expired");
pub const INVALID_USER_TICKET: SimulatedError = SimulatedError(84015, "invalid user_ticket");

impl SimulatedError {
    /// Builds the error response, with the long `errmsg` of current API versions.
    pub fn response(&self, now: Timestamp, peer: IpAddr) -> Response {
        let &SimulatedError(number, text) = self;
        let hint = format!("{:010}{:09}{:06}", now.seconds(), random_below(1_000_000_000), random_below(1_000_000));
        let more = format!("https://open.work.weixin.qq.com/devtool/query?e={number}");
        let errmsg = format!("{text}, hint: [{hint}], from ip: {peer}, more info at {more}");
        json_response(&json!({ "errcode": number, "errmsg": errmsg }))
    }
}

/// Builds a response of the server API: always HTTP 200, with number and text repeated in two headers.
pub fn json_response(fields: &Value) -> Response {
    const ERROR_CODE: HeaderName = HeaderName::from_static("error-code");
    const ERROR_MSG: HeaderName = HeaderName::from_static("error-msg");
    let mut response = fields.to_string().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=UTF-8"));
    headers.insert(ERROR_CODE, HeaderValue::from(fields["errcode"].as_i64().unwrap_or_default()));
    if let Ok(errmsg) = HeaderValue::from_str(fields["errmsg"].as_str().unwrap_or_default()) {
        headers.insert(ERROR_MSG, errmsg);
    }
    response
}

/// The fields of a success, or the error code.
pub type ApiResult = Result<Value, SimulatedError>;

/// A call of the server API.
pub struct ApiCall {
    peer: IpAddr,
    parameters: Parameters,
    body: Bytes,
}

impl ApiCall {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)
    }

    /// Parses the body as a JSON object.
    fn json(&self) -> ApiResult {
        serde_json::from_slice(&self.body).ok().filter(Value::is_object).ok_or(NOT_JSON)
    }
}

impl FromRequest<SharedState> for ApiCall {
    type Rejection = Response;

    async fn from_request(request: Request, state: &SharedState) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let parameters = Parameters::of(&parts.uri);
        let ConnectInfo(peer) = ConnectInfo::<SocketAddr>::from_request_parts(&mut parts, state)
            .await
            .map_err(IntoResponse::into_response)?;
        let body = Bytes::from_request(Request::from_parts(parts, body), state).await;
        Ok(Self { peer: peer.ip(), parameters, body: body.map_err(IntoResponse::into_response)? })
    }
}

/// Decides a call while the state is locked.
type ApiEndpoint = fn(&mut PlatformState, &ApiCall) -> ApiResult;

/// Routes GET to an endpoint.
pub fn on_get(endpoint: ApiEndpoint) -> MethodRouter<SharedState> {
    get(async move |State(state): State<SharedState>, call: ApiCall| respond(&state, &call, endpoint))
}

/// Routes POST to an endpoint.
pub fn on_post(endpoint: ApiEndpoint) -> MethodRouter<SharedState> {
    post(async move |State(state): State<SharedState>, call: ApiCall| respond(&state, &call, endpoint))
}

fn respond(state: &SharedState, call: &ApiCall, endpoint: ApiEndpoint) -> Response {
    let mut state = state.lock();
    match endpoint(&mut state, call) {
        Ok(mut fields) => {
            fields["errcode"] = json!(0);
            fields["errmsg"] = json!("ok");
            json_response(&fields)
        }
        Err(errcode) => errcode.response(state.now(), call.peer),
    }
}

/// Returns the holder of the call's token, if the caller's address is allowed.
fn authenticate(state: &PlatformState, call: &ApiCall) -> Result<TokenHolder, SimulatedError> {
    let token = call.parameter("access_token").ok_or(TOKEN_MISSING)?;
    let stale = |default: SimulatedError| match state.switches.stale_token_errcode {
        Some(StaleErrcode::Invalid) => INVALID_TOKEN,
        Some(StaleErrcode::Expired) => TOKEN_EXPIRED,
        None => default,
    };
    let holder = match state.tokens.state(token, state.now()) {
        TokenState::Valid(holder) => holder,
        TokenState::Expired => return Err(stale(TOKEN_EXPIRED)),
        TokenState::Revoked => return Err(stale(INVALID_TOKEN)),
        TokenState::Unknown => return Err(INVALID_TOKEN),
    };
    if state.switches.denies(call.peer) { Err(ADDRESS_NOT_ALLOWED) } else { Ok(holder) }
}

/// Returns the calling application of the main corporation. A connected corporation's token reads contacts only.
fn authenticate_own(state: &PlatformState, call: &ApiCall) -> Result<&'static Application, SimulatedError> {
    let holder = authenticate(state, call)?;
    if holder.corp_id == CORP_ID { Ok(holder.application) } else { Err(API_FORBIDDEN) }
}

/// `GET /cgi-bin/gettoken`. Ignores the allowed addresses, which reportedly apply to the other calls only.
pub fn issue_token(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let corp_id = call.parameter("corpid").ok_or(CORPID_MISSING)?;
    let secret = call.parameter("corpsecret").ok_or(SECRET_MISSING)?;
    if corp_id != CORP_ID {
        return Err(INVALID_CORPID);
    }
    let application = APPLICATIONS.iter().find(|known| known.secret == secret).ok_or(INVALID_CREDENTIAL)?;
    let (holder, now) = (TokenHolder { application, corp_id: CORP_ID }, state.now());
    let (token, remaining) = state.tokens.issue(holder, &state.switches, now);
    Ok(json!({ "access_token": token, "expires_in": remaining.as_secs() }))
}

/// `GET /cgi-bin/getcallbackip` and `GET /cgi-bin/get_api_domain_ip`
pub fn addresses(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    authenticate(state, call)?;
    Ok(json!({ "ip_list": ["127.0.0.1"] }))
}

/// The result of a code exchange.
struct CodeExchange {
    person: EffectiveMember,
    user_ticket: Option<String>,
}

/// `GET /cgi-bin/auth/getuserinfo`
pub fn user_info(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let exchange = exchange_code(state, call)?;
    let mut fields = identifiers(&exchange.person, "userid", "openid");
    if let Some(ticket) = exchange.user_ticket {
        fields["user_ticket"] = json!(ticket);
    }
    Ok(fields)
}

/// `GET /cgi-bin/user/getuserinfo`: the older form, which capitalises its keys and has more of them.
pub fn legacy_user_info(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let exchange = exchange_code(state, call)?;
    let mut fields = identifiers(&exchange.person, "UserId", "OpenId");
    fields["DeviceId"] = json!("");
    if let Some(ticket) = exchange.user_ticket {
        fields["user_ticket"] = json!(ticket);
        fields["expires_in"] = json!(USER_TICKET_LIFETIME.as_secs());
    }
    Ok(fields)
}

fn identifiers(person: &EffectiveMember, userid_key: &str, openid_key: &str) -> Value {
    match person.kind {
        MemberKind::Active
        | MemberKind::Disabled
        | MemberKind::NotActivated
        | MemberKind::Left
        | MemberKind::Deleted
        | MemberKind::Linked => json!({ userid_key: person.identifier() }),
        MemberKind::Outsider => json!({ openid_key: person.openid() }),
        MemberKind::Customer => json!({ openid_key: person.openid(), "external_userid": person.external_userid() }),
    }
}

/// Uses a code up. The identifier needs no visibility, the user ticket does. A rejected exchange leaves the code
/// usable.
fn exchange_code(state: &mut PlatformState, call: &ApiCall) -> Result<CodeExchange, SimulatedError> {
    let application = authenticate_own(state, call)?;
    let code = call.parameter("code").ok_or(CODE_MISSING)?;
    let now = state.now();
    let grant = state.codes.grant(code, application, now).ok_or(INVALID_CODE)?.clone();
    if !state.switches.trusts(application, &grant.domain) {
        return Err(DOMAIN_NOT_TRUSTED);
    }
    state.codes.consume(code);
    let person = state.switches.effective(grant.member);
    let shares =
        grant.scope == AuthorizeScope::PrivateInfo && state.switches.can_share_private_fields(application, &person);
    let user_ticket = shares.then(|| state.codes.issue_ticket(grant.member, application, now));
    Ok(CodeExchange { person, user_ticket })
}

/// `POST /cgi-bin/auth/getuserdetail`: the private fields that the member agreed to share, without the name.
pub fn user_detail(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let application = authenticate_own(state, call)?;
    let body = call.json()?;
    let ticket = body["user_ticket"].as_str().ok_or(INVALID_USER_TICKET)?;
    let member = match state.codes.ticket(ticket, application, state.now()) {
        UserTicketState::Valid(member) => member,
        UserTicketState::Expired => return Err(USER_TICKET_EXPIRED),
        UserTicketState::Unknown => return Err(INVALID_USER_TICKET),
    };
    let person = state.switches.effective(member);
    if !state.switches.can_share_private_fields(application, &person) {
        return Err(MEMBER_OUT_OF_RANGE);
    }
    let mut fields = private_fields(state, &person);
    fields["userid"] = json!(member.userid);
    Ok(fields)
}

/// The fields that need a member's consent. Numbers and mail addresses belong to no real person.
fn private_fields(state: &PlatformState, person: &EffectiveMember) -> Value {
    let userid = person.member.userid;
    let origin = &state.origin;
    let digits: String = userid.chars().filter(char::is_ascii_digit).collect();
    json!({
        "gender": "0",
        "avatar": format!("{origin}/simulator/avatars/{userid}"),
        "qr_code": format!("{origin}/simulator/avatars/{userid}"),
        "mobile": format!("1000000{digits}"),
        "email": format!("{userid}@mail.example"),
        "biz_mail": format!("{userid}@corp.example"),
        "address": "",
    })
}

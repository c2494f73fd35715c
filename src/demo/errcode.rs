//! Error codes of the server API. Clients branch on the number and must not depend on the text.

use std::net::IpAddr;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::domain::clock::Timestamp;
use crate::domain::secret::random_below;

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

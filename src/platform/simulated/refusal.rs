//! The platform's refusals: a number that clients branch on, and a text that they must not.

use std::net::IpAddr;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::domain::clock::Timestamp;
use crate::domain::secret::random_below;

/// The platform's number and text for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal(pub i64, pub &'static str);

// Texts are those seen in reports and samples, the rest a paraphrase: nothing may depend on them.

pub const BUSY: Refusal = Refusal(-1, "system busy");
pub const INVALID_CREDENTIAL: Refusal = Refusal(40001, "invalid credential");
pub const INVALID_USERID: Refusal = Refusal(40003, "invalid userid");
pub const INVALID_CORPID: Refusal = Refusal(40013, "invalid corpid");
pub const INVALID_TOKEN: Refusal = Refusal(40014, "invalid access_token");
pub const INVALID_CODE: Refusal = Refusal(40029, "invalid code");
pub const INVALID_AGENTID: Refusal = Refusal(40056, "invalid agentid");
pub const INVALID_PARAMETER: Refusal = Refusal(40058, "invalid parameter");
pub const TOKEN_MISSING: Refusal = Refusal(41001, "access_token missing");
pub const CORPID_MISSING: Refusal = Refusal(41002, "corpid missing");
pub const SECRET_MISSING: Refusal = Refusal(41004, "secret missing");
pub const CODE_MISSING: Refusal = Refusal(41008, "missing code");
pub const USERID_MISSING: Refusal = Refusal(41009, "missing userid");
pub const AGENTID_MISSING: Refusal = Refusal(41011, "missing agentid");
pub const TOKEN_EXPIRED: Refusal = Refusal(42001, "access_token expired");
pub const TOO_FREQUENT: Refusal = Refusal(45009, "api freq out of limit");
pub const NOT_JSON: Refusal = Refusal(47001, "data format error");
pub const API_FORBIDDEN: Refusal = Refusal(48002, "api forbidden");
pub const DOMAIN_NOT_TRUSTED: Refusal = Refusal(50001, "redirect_uri unauthorized");
pub const MEMBER_OUT_OF_RANGE: Refusal = Refusal(50002, "member out of range");
pub const DEPARTMENT_NOT_FOUND: Refusal = Refusal(60003, "department not found");
pub const NO_PRIVILEGE: Refusal = Refusal(60011, "no privilege to access/modify contact/party/agent");
pub const ADDRESS_NOT_ALLOWED: Refusal = Refusal(60020, "not allow to access from your ip");
pub const USERID_OUT_OF_RANGE: Refusal = Refusal(60021, "userid out of range");
pub const USERID_NOT_FOUND: Refusal = Refusal(60111, "userid not found");
pub const USER_TICKET_EXPIRED: Refusal = Refusal(84014, "user_ticket expired");
pub const INVALID_USER_TICKET: Refusal = Refusal(84015, "invalid user_ticket");

impl Refusal {
    /// The answer, with the long text of newer answers.
    pub fn answer(&self, now: Timestamp, peer: IpAddr) -> Response {
        let &Refusal(errcode, text) = self;
        let hint = format!("{:010}{:09}{:06}", now.seconds(), random_below(1_000_000_000), random_below(1_000_000));
        let more = format!("https://open.work.weixin.qq.com/devtool/query?e={errcode}");
        let errmsg = format!("{text}, hint: [{hint}], from ip: {peer}, more info at {more}");
        body(&json!({ "errcode": errcode, "errmsg": errmsg }))
    }
}

/// An answer of the server API: always HTTP 200, its number and text in two header fields as well.
pub fn body(fields: &Value) -> Response {
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

//! The server API. Every answer is HTTP 200; `errcode` in the body tells.

use std::net::{IpAddr, SocketAddr};
use std::sync::MutexGuard;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use serde_json::{Value, json};

use super::ledger::{App, Ledger, TokenState};
use super::members::{self, CORP_ID, DEPARTMENTS, Member, MemberKind};
use super::query::Parameters;
use super::{APPS, Shared, path};
use crate::domain::clock::Timestamp;
use crate::domain::employee::EmployeeId;
use crate::domain::secret::random_below;

/// The platform's number and text for a refusal.
struct Refusal(i64, &'static str);

const INVALID_CREDENTIAL: Refusal = Refusal(40001, "invalid credential");
const INVALID_USERID: Refusal = Refusal(40003, "invalid userid");
const INVALID_CORPID: Refusal = Refusal(40013, "invalid corpid");
const INVALID_TOKEN: Refusal = Refusal(40014, "invalid access_token");
const INVALID_CODE: Refusal = Refusal(40029, "invalid code");
const TOKEN_MISSING: Refusal = Refusal(41001, "access_token missing");
const CORPID_MISSING: Refusal = Refusal(41002, "corpid missing");
const SECRET_MISSING: Refusal = Refusal(41004, "secret missing");
const CODE_MISSING: Refusal = Refusal(41008, "missing code");
const USERID_MISSING: Refusal = Refusal(41009, "missing userid");
const TOKEN_EXPIRED: Refusal = Refusal(42001, "access_token expired");
const DEPARTMENT_NOT_FOUND: Refusal = Refusal(60003, "department not found");
const USERID_NOT_FOUND: Refusal = Refusal(60111, "userid not found");

type Outcome = Result<Value, Refusal>;

/// One call: counts it, decides it under one lock, and dresses the answer.
fn answer(
    shared: &Shared,
    peer: SocketAddr,
    path: &'static str,
    decide: impl FnOnce(&mut Ledger) -> Outcome,
) -> Json<Value> {
    let mut ledger: MutexGuard<'_, Ledger> = shared.ledger();
    ledger.count(path);
    Json(match decide(&mut ledger) {
        Ok(mut fields) => {
            fields["errcode"] = json!(0);
            fields["errmsg"] = json!("ok");
            fields
        }
        Err(refusal) => refused(&refusal, ledger.now(), peer.ip()),
    })
}

/// The long text of newer answers; clients must not read it.
fn refused(&Refusal(errcode, text): &Refusal, now: Timestamp, peer: IpAddr) -> Value {
    let hint = format!("{:010}{:09}{:06}", now.seconds(), random_below(1_000_000_000), random_below(1_000_000));
    let more = format!("https://open.work.weixin.qq.com/devtool/query?e={errcode}");
    json!({ "errcode": errcode, "errmsg": format!("{text}, hint: [{hint}], from ip: {peer}, more info at {more}") })
}

/// The application that calls.
fn caller(ledger: &Ledger, parameters: &Parameters) -> Result<&'static App, Refusal> {
    let token = parameters.get("access_token").ok_or(TOKEN_MISSING)?;
    match ledger.token_state(token) {
        TokenState::Of(app) => Ok(app),
        TokenState::Expired => Err(TOKEN_EXPIRED),
        TokenState::Unknown => Err(INVALID_TOKEN),
    }
}

/// `GET /cgi-bin/gettoken`
pub async fn token(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    parameters: Parameters,
) -> Json<Value> {
    answer(&shared, peer, path::TOKEN, |ledger| {
        let corp_id = parameters.get("corpid").ok_or(CORPID_MISSING)?;
        let secret = parameters.get("corpsecret").ok_or(SECRET_MISSING)?;
        if corp_id != CORP_ID {
            return Err(INVALID_CORPID);
        }
        let app = APPS.iter().find(|app| app.secret == secret).ok_or(INVALID_CREDENTIAL)?;
        let (token, left) = ledger.give_token(app);
        Ok(json!({ "access_token": token, "expires_in": left.as_secs() }))
    })
}

/// `GET /cgi-bin/auth/getuserinfo`
pub async fn user_info(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    parameters: Parameters,
) -> Json<Value> {
    answer(&shared, peer, path::USER_INFO, |ledger| {
        Ok(json!({ "userid": spend_code(ledger, &parameters)?.identifier() }))
    })
}

/// `GET /cgi-bin/user/getuserinfo`, the older form: other letters, one more field.
pub async fn legacy_user_info(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    parameters: Parameters,
) -> Json<Value> {
    answer(&shared, peer, path::LEGACY_USER_INFO, |ledger| {
        Ok(json!({ "UserId": spend_code(ledger, &parameters)?.identifier(), "DeviceId": "" }))
    })
}

fn spend_code(ledger: &mut Ledger, parameters: &Parameters) -> Result<&'static Member, Refusal> {
    let app = caller(ledger, parameters)?;
    let code = parameters.get("code").ok_or(CODE_MISSING)?;
    ledger.spend_code(code, app).ok_or(INVALID_CODE)
}

/// `GET /cgi-bin/user/get`
pub async fn user(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    parameters: Parameters,
) -> Json<Value> {
    answer(&shared, peer, path::USER, |ledger| {
        caller(ledger, &parameters)?;
        let userid = parameters.get("userid").ok_or(USERID_MISSING)?;
        if !EmployeeId::is_well_formed(userid) {
            return Err(INVALID_USERID);
        }
        let member = members::find(userid).ok_or(USERID_NOT_FOUND)?;
        let status = match member.kind {
            MemberKind::Active => 1,
            MemberKind::Disabled => 2,
            MemberKind::Linked { .. } => return Err(USERID_NOT_FOUND),
        };
        let department = member.department_id().ok_or(USERID_NOT_FOUND)?;
        // No picture, telephone or mail: applications made after June 2022 are not told.
        Ok(json!({
            "userid": member.userid,
            "name": member.name,
            "department": [department],
            "order": [0],
            "position": "",
            "status": status,
            "main_department": department,
            "is_leader_in_dept": [0],
            "direct_leader": [],
            "alias": "",
            "telephone": "",
            "extattr": { "attrs": [] },
        }))
    })
}

/// `GET /cgi-bin/department/get`
pub async fn department(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    parameters: Parameters,
) -> Json<Value> {
    answer(&shared, peer, path::DEPARTMENT, |ledger| {
        caller(ledger, &parameters)?;
        let id: Option<i64> = parameters.get("id").and_then(|id| id.parse().ok());
        let found = DEPARTMENTS.iter().find(|(number, _)| Some(*number) == id);
        let (id, name) = found.ok_or(DEPARTMENT_NOT_FOUND)?;
        let department =
            json!({ "id": id, "name": name, "name_en": "", "department_leader": [], "parentid": 1, "order": 0 });
        Ok(json!({ "department": department }))
    })
}

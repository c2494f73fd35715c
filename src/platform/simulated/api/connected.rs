//! Connected corporations: their members' profiles, directly or with a token of their own.

use serde_json::{Value, json};

use super::super::ledger::Ledger;
use super::super::ledger::tokens::Holder;
use super::super::members::{DEPARTMENTS, PARTNER_CORP_ID, ROOT};
use super::super::refusal::{
    AGENTID_MISSING, CORPID_MISSING, INVALID_AGENTID, INVALID_CORPID, INVALID_PARAMETER, INVALID_USERID, Refusal,
    USERID_MISSING, USERID_NOT_FOUND, USERID_OUT_OF_RANGE,
};
use super::super::switches::Kind;
use super::{Call, Outcome, app};

/// The connection between the two corporations, in department identifiers.
const LINKED_ID: &str = "LINKEDID";

/// `POST /cgi-bin/linkedcorp/user/get`
pub fn user(ledger: &mut Ledger, call: &Call) -> Outcome {
    let app = app(ledger, call)?;
    let body = call.body()?;
    let userid = body["userid"].as_str().filter(|userid| !userid.is_empty()).ok_or(USERID_MISSING)?;
    if !userid.contains('/') {
        return Err(INVALID_USERID);
    }
    let person = ledger.person(userid).filter(|person| person.kind == Kind::Linked).ok_or(USERID_NOT_FOUND)?;
    if !ledger.switches.sees(app, &person) {
        return Err(USERID_OUT_OF_RANGE);
    }
    Ok(json!({ "user_info": {
        "userid": person.member.userid,
        "name": person.member.name,
        // Strings here, numbers in the corporation's own contacts.
        "department": [format!("{LINKED_ID}/{}", person.department_id())],
        "mobile": "",
        "telephone": "",
        "email": "",
        "position": "",
        "corpid": PARTNER_CORP_ID,
        "extattr": { "attrs": [] },
    } }))
}

/// `POST /cgi-bin/corpgroup/corp/gettoken`: a token that reads the connected corporation's contacts.
pub fn token(ledger: &mut Ledger, call: &Call) -> Outcome {
    let app = app(ledger, call)?;
    let body = call.body()?;
    if body["corpid"].as_str().ok_or(CORPID_MISSING)? != PARTNER_CORP_ID {
        return Err(INVALID_CORPID);
    }
    check_business(&body)?;
    // The application's number over there, not ours.
    if Some(agent_id(&body)?.as_str()) != app.partner_agent_id {
        return Err(INVALID_AGENTID);
    }
    let now = ledger.now();
    let (token, left) = ledger.tokens.give(Holder { app, corp_id: PARTNER_CORP_ID }, &ledger.switches, now);
    Ok(json!({ "access_token": token, "expires_in": left.as_secs() }))
}

/// `POST /cgi-bin/corpgroup/corp/list_app_share_info`
pub fn shared_with(ledger: &mut Ledger, call: &Call) -> Outcome {
    let app = app(ledger, call)?;
    let body = call.body()?;
    check_business(&body)?;
    if agent_id(&body)? != app.agent_id {
        return Err(INVALID_AGENTID);
    }
    let wanted = body["corpid"].as_str().is_none_or(|corp_id| corp_id.is_empty() || corp_id == PARTNER_CORP_ID);
    let partner = DEPARTMENTS.iter().find(|known| known.corp_id == PARTNER_CORP_ID && known.id == ROOT);
    let corporations: Vec<Value> = match (partner, app.partner_agent_id) {
        (Some(partner), Some(agent_id)) if wanted => {
            let agent_id: i64 = agent_id.parse().unwrap_or_default();
            vec![json!({ "corpid": PARTNER_CORP_ID, "corp_name": partner.name, "agentid": agent_id })]
        }
        _ => Vec::new(),
    };
    Ok(json!({ "ending": 1, "corp_list": corporations, "next_cursor": "" }))
}

/// 0 and 1 are two kinds of connection; the partner is connected in both ways.
fn check_business(body: &Value) -> Result<(), Refusal> {
    match &body["business_type"] {
        Value::Null => Ok(()),
        value if matches!(value.as_i64(), Some(0 | 1)) => Ok(()),
        _ => Err(INVALID_PARAMETER),
    }
}

/// Clients send it as a number or as text.
fn agent_id(body: &Value) -> Result<String, Refusal> {
    match &body["agentid"] {
        Value::Number(number) => Ok(number.to_string()),
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(AGENTID_MISSING),
    }
}

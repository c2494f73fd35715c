//! The contacts API: members and departments of the token's corporation, and of connected corporations.

use serde_json::{Value, json};

use super::{
    AGENTID_MISSING, CORPID_MISSING, DEPARTMENT_NOT_FOUND, INVALID_AGENTID, INVALID_CORPID, INVALID_PARAMETER,
    INVALID_USERID, NO_PRIVILEGE, SimulatedError, USERID_MISSING, USERID_NOT_FOUND, USERID_OUT_OF_RANGE,
};
use super::{ApiCall, ApiResult, authenticate, authenticate_own, private_fields};
use crate::demo::members::{CorpDepartment, DEPARTMENTS, EffectiveMember, MemberKind, PARTNER_CORP_ID, ROOT};
use crate::demo::state::PlatformState;
use crate::demo::state::credentials::TokenHolder;
use crate::domain::employee::EmployeeId;

/// The identifier of the connection between the two corporations, a prefix of department identifiers.
const LINKED_ID: &str = "LINKEDID";

/// `GET /cgi-bin/user/get`
pub fn user(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let holder = authenticate(state, call)?;
    let userid = call.parameter("userid").ok_or(USERID_MISSING)?;
    if !EmployeeId::is_well_formed(userid) {
        return Err(INVALID_USERID);
    }
    let person = state.switches.find_member(userid).filter(|person| person.corp_id() == Some(holder.corp_id));
    let person = person.ok_or(USERID_NOT_FOUND)?;
    if !state.switches.sees(holder.application, &person) {
        return Err(NO_PRIVILEGE);
    }
    Ok(profile(state, &person))
}

/// `GET /cgi-bin/user/simplelist`
pub fn user_simple_list(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let summary = |person: &EffectiveMember| {
        json!({
            "userid": person.member.userid, "name": person.member.name, "department": [person.department_id()]
        })
    };
    let users: Vec<Value> = department_members(state, call)?.iter().map(summary).collect();
    Ok(json!({ "userlist": users }))
}

/// `GET /cgi-bin/user/list`
pub fn user_list(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let users: Vec<Value> = department_members(state, call)?.iter().map(|person| profile(state, person)).collect();
    Ok(json!({ "userlist": users }))
}

/// The members of a department, with `fetch_child=1` also of its children.
fn department_members(state: &PlatformState, call: &ApiCall) -> Result<Vec<EffectiveMember>, SimulatedError> {
    let holder = authenticate(state, call)?;
    let department = find_department(state, holder, call.parameter("department_id"))?;
    let with_children = department.id == ROOT && call.parameter("fetch_child") == Some("1");
    let mut members = visible_members(state, holder);
    members.retain(|person| with_children || person.department_id() == department.id);
    Ok(members)
}

/// `GET /cgi-bin/department/get`: an object.
pub fn department(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let holder = authenticate(state, call)?;
    Ok(json!({ "department": department_fields(find_department(state, holder, call.parameter("id"))?) }))
}

/// `GET /cgi-bin/department/list`: a list of all departments, or of one and its children.
pub fn department_list(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let departments: Vec<Value> = subtree(state, call)?.into_iter().map(department_fields).collect();
    Ok(json!({ "department": departments }))
}

/// `GET /cgi-bin/department/simplelist`
pub fn department_simple_list(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let summary =
        |department: &CorpDepartment| json!({ "id": department.id, "parentid": department.parent(), "order": 0 });
    let departments: Vec<Value> = subtree(state, call)?.into_iter().map(summary).collect();
    Ok(json!({ "department_id": departments }))
}

fn subtree(state: &PlatformState, call: &ApiCall) -> Result<Vec<&'static CorpDepartment>, SimulatedError> {
    let holder = authenticate(state, call)?;
    let top = call.parameter("id").map(|id| find_department(state, holder, Some(id))).transpose()?;
    let is_below = |department: &&CorpDepartment| top.is_none_or(|top| top.id == ROOT || top == *department);
    let own = DEPARTMENTS.iter().filter(|department| department.corp_id == holder.corp_id);
    Ok(own.filter(is_below).filter(|department| is_visible(state, holder, department)).collect())
}

fn find_department(
    state: &PlatformState,
    holder: TokenHolder,
    id: Option<&str>,
) -> Result<&'static CorpDepartment, SimulatedError> {
    let id: Option<i64> = id.and_then(|id| id.parse().ok());
    let matches = |department: &&CorpDepartment| department.corp_id == holder.corp_id && Some(department.id) == id;
    let department = DEPARTMENTS.iter().find(matches).ok_or(DEPARTMENT_NOT_FOUND)?;
    if is_visible(state, holder, department) { Ok(department) } else { Err(NO_PRIVILEGE) }
}

/// A department is visible if one of its members is; without a visible range all of them are.
fn is_visible(state: &PlatformState, holder: TokenHolder, department: &CorpDepartment) -> bool {
    let is_inside = |person: &EffectiveMember| person.department_id() == department.id;
    state.switches.visible_range.is_empty() || visible_members(state, holder).iter().any(is_inside)
}

fn visible_members(state: &PlatformState, holder: TokenHolder) -> Vec<EffectiveMember> {
    state
        .switches
        .effective_members()
        .filter(|person| person.corp_id() == Some(holder.corp_id) && state.switches.sees(holder.application, person))
        .collect()
}

fn department_fields(department: &CorpDepartment) -> Value {
    json!({
        "id": department.id,
        "name": department.name,
        "name_en": "",
        "department_leader": [],
        "parentid": department.parent(),
        "order": 0,
    })
}

/// Builds a profile; applications created after June 2022 get no private fields.
fn profile(state: &PlatformState, person: &EffectiveMember) -> Value {
    let department = person.department_id();
    let mut fields = match state.switches.old_application {
        true => private_fields(state, person),
        false => json!({}),
    };
    let public = json!({
        "userid": person.member.userid,
        "name": person.member.name,
        "department": [department],
        "order": [0],
        "position": "",
        "status": person.status(),
        "main_department": department,
        "is_leader_in_dept": [0],
        "direct_leader": [],
        "alias": "",
        "telephone": "",
        "extattr": { "attrs": [] },
    });
    if let (Some(fields), Value::Object(public)) = (fields.as_object_mut(), public) {
        fields.extend(public);
    }
    fields
}

/// `POST /cgi-bin/linkedcorp/user/get`
pub fn linked_user(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let application = authenticate_own(state, call)?;
    let body = call.json()?;
    let userid = body["userid"].as_str().filter(|userid| !userid.is_empty()).ok_or(USERID_MISSING)?;
    if !userid.contains('/') {
        return Err(INVALID_USERID);
    }
    let person = state.switches.find_member(userid).filter(|person| person.kind == MemberKind::Linked);
    let person = person.ok_or(USERID_NOT_FOUND)?;
    if !state.switches.sees(application, &person) {
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

/// `POST /cgi-bin/corpgroup/corp/gettoken`: issues a token for the connected corporation's contacts.
pub fn issue_downstream_token(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let application = authenticate_own(state, call)?;
    let body = call.json()?;
    if body["corpid"].as_str().ok_or(CORPID_MISSING)? != PARTNER_CORP_ID {
        return Err(INVALID_CORPID);
    }
    check_business_type(&body)?;
    // The `agentid` at the connected corporation, not at ours.
    if Some(agent_id(&body)?.as_str()) != application.partner_agent_id {
        return Err(INVALID_AGENTID);
    }
    let (holder, now) = (TokenHolder { application, corp_id: PARTNER_CORP_ID }, state.now());
    let (token, remaining) = state.tokens.issue(holder, &state.switches, now);
    Ok(json!({ "access_token": token, "expires_in": remaining.as_secs() }))
}

/// `POST /cgi-bin/corpgroup/corp/list_app_share_info`
pub fn shared_with(state: &mut PlatformState, call: &ApiCall) -> ApiResult {
    let application = authenticate_own(state, call)?;
    let body = call.json()?;
    check_business_type(&body)?;
    if agent_id(&body)? != application.agent_id {
        return Err(INVALID_AGENTID);
    }
    let wanted = body["corpid"].as_str().is_none_or(|corp_id| corp_id.is_empty() || corp_id == PARTNER_CORP_ID);
    let partner = DEPARTMENTS.iter().find(|known| known.corp_id == PARTNER_CORP_ID && known.id == ROOT);
    let corporations: Vec<Value> = match (partner, application.partner_agent_id) {
        (Some(partner), Some(agent_id)) if wanted => {
            let agent_id: i64 = agent_id.parse().unwrap_or_default();
            vec![json!({ "corpid": PARTNER_CORP_ID, "corp_name": partner.name, "agentid": agent_id })]
        }
        _ => Vec::new(),
    };
    Ok(json!({ "ending": 1, "corp_list": corporations, "next_cursor": "" }))
}

/// Accepts both kinds of connection, 0 and 1; the partner is connected by both.
fn check_business_type(body: &Value) -> Result<(), SimulatedError> {
    match &body["business_type"] {
        Value::Null => Ok(()),
        value if matches!(value.as_i64(), Some(0 | 1)) => Ok(()),
        _ => Err(INVALID_PARAMETER),
    }
}

/// Reads `agentid`, which clients send as a number or as text.
fn agent_id(body: &Value) -> Result<String, SimulatedError> {
    match &body["agentid"] {
        Value::Number(number) => Ok(number.to_string()),
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(AGENTID_MISSING),
    }
}

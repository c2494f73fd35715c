//! Members and departments of the corporation that the token is for.

use serde_json::{Value, json};

use super::super::ledger::Ledger;
use super::super::ledger::tokens::Holder;
use super::super::members::{DEPARTMENTS, Department, Person, ROOT};
use super::super::refusal::{
    DEPARTMENT_NOT_FOUND, INVALID_USERID, NO_PRIVILEGE, Refusal, USERID_MISSING, USERID_NOT_FOUND,
};
use super::{Call, Outcome, holder};
use crate::domain::employee::EmployeeId;

/// `GET /cgi-bin/user/get`
pub fn user(ledger: &mut Ledger, call: &Call) -> Outcome {
    let holder = holder(ledger, call)?;
    let userid = call.get("userid").ok_or(USERID_MISSING)?;
    if !EmployeeId::is_well_formed(userid) {
        return Err(INVALID_USERID);
    }
    let person = ledger.person(userid).filter(|person| person.corp_id() == Some(holder.corp_id));
    let person = person.ok_or(USERID_NOT_FOUND)?;
    if !ledger.switches.sees(holder.app, &person) {
        return Err(NO_PRIVILEGE);
    }
    Ok(profile(ledger, &person))
}

/// `GET /cgi-bin/user/simplelist`
pub fn users_in_short(ledger: &mut Ledger, call: &Call) -> Outcome {
    let short = |person: &Person| json!({ "userid": person.member.userid, "name": person.member.name, "department": [person.department_id()] });
    let people: Vec<Value> = people(ledger, call)?.iter().map(short).collect();
    Ok(json!({ "userlist": people }))
}

/// `GET /cgi-bin/user/list`
pub fn users(ledger: &mut Ledger, call: &Call) -> Outcome {
    let people: Vec<Value> = people(ledger, call)?.iter().map(|person| profile(ledger, person)).collect();
    Ok(json!({ "userlist": people }))
}

/// Who is in a department, and with `fetch_child=1` in those below it.
fn people(ledger: &Ledger, call: &Call) -> Result<Vec<Person>, Refusal> {
    let holder = holder(ledger, call)?;
    let department = find(ledger, holder, call.get("department_id"))?;
    let whole = department.id == ROOT && call.get("fetch_child") == Some("1");
    let mut people = visible(ledger, holder);
    people.retain(|person| whole || person.department_id() == department.id);
    Ok(people)
}

/// `GET /cgi-bin/department/get`: an object.
pub fn department(ledger: &mut Ledger, call: &Call) -> Outcome {
    let holder = holder(ledger, call)?;
    Ok(json!({ "department": described(find(ledger, holder, call.get("id"))?) }))
}

/// `GET /cgi-bin/department/list`: a list, of all departments or of one and those below it.
pub fn departments(ledger: &mut Ledger, call: &Call) -> Outcome {
    let found: Vec<Value> = below(ledger, call)?.into_iter().map(described).collect();
    Ok(json!({ "department": found }))
}

/// `GET /cgi-bin/department/simplelist`
pub fn departments_in_short(ledger: &mut Ledger, call: &Call) -> Outcome {
    let short = |department: &Department| json!({ "id": department.id, "parentid": department.parent(), "order": 0 });
    let found: Vec<Value> = below(ledger, call)?.into_iter().map(short).collect();
    Ok(json!({ "department_id": found }))
}

fn below(ledger: &Ledger, call: &Call) -> Result<Vec<&'static Department>, Refusal> {
    let holder = holder(ledger, call)?;
    let top = call.get("id").map(|id| find(ledger, holder, Some(id))).transpose()?;
    let wanted = |department: &&Department| top.is_none_or(|top| top.id == ROOT || top == *department);
    let own = DEPARTMENTS.iter().filter(|department| department.corp_id == holder.corp_id);
    Ok(own.filter(wanted).filter(|department| is_visible(ledger, holder, department)).collect())
}

fn find(ledger: &Ledger, holder: Holder, id: Option<&str>) -> Result<&'static Department, Refusal> {
    let id: Option<i64> = id.and_then(|id| id.parse().ok());
    let known = |department: &&Department| department.corp_id == holder.corp_id && Some(department.id) == id;
    let department = DEPARTMENTS.iter().find(known).ok_or(DEPARTMENT_NOT_FOUND)?;
    if is_visible(ledger, holder, department) { Ok(department) } else { Err(NO_PRIVILEGE) }
}

/// A department is visible with one of its members; without a visible range everything is.
fn is_visible(ledger: &Ledger, holder: Holder, department: &Department) -> bool {
    let inside = |person: &Person| person.department_id() == department.id;
    ledger.switches.visible_range.is_empty() || visible(ledger, holder).iter().any(inside)
}

fn visible(ledger: &Ledger, holder: Holder) -> Vec<Person> {
    Person::all(&ledger.switches)
        .filter(|person| person.corp_id() == Some(holder.corp_id) && ledger.switches.sees(holder.app, person))
        .collect()
}

fn described(department: &Department) -> Value {
    json!({
        "id": department.id,
        "name": department.name,
        "name_en": "",
        "department_leader": [],
        "parentid": department.parent(),
        "order": 0,
    })
}

/// Picture, telephone and mail only for old applications: those made after June 2022 are not told.
fn profile(ledger: &Ledger, person: &Person) -> Value {
    let department = person.department_id();
    let mut fields = match ledger.switches.old_application {
        true => private_fields(ledger, person),
        false => json!({}),
    };
    let own = json!({
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
    if let (Some(fields), Value::Object(own)) = (fields.as_object_mut(), own) {
        fields.extend(own);
    }
    fields
}

/// What members must agree to show. Numbers and mail addresses are nobody's.
pub(super) fn private_fields(ledger: &Ledger, person: &Person) -> Value {
    let userid = person.member.userid;
    let origin = &ledger.origin;
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

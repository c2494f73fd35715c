//! A code to a person. The two paths spell their keys differently: clients have broken on it.

use serde_json::{Value, json};

use super::super::ledger::Ledger;
use super::super::ledger::codes::{Scope, TICKET_LIFETIME, TicketState};
use super::super::members::Person;
use super::super::refusal::{
    CODE_MISSING, DOMAIN_NOT_TRUSTED, INVALID_CODE, INVALID_USER_TICKET, MEMBER_OUT_OF_RANGE, Refusal,
    USER_TICKET_EXPIRED,
};
use super::super::switches::Kind;
use super::contacts::private_fields;
use super::{Call, Outcome, app};

/// What a code brought.
struct Identified {
    person: Person,
    user_ticket: Option<String>,
}

/// `GET /cgi-bin/auth/getuserinfo`
pub fn user_info(ledger: &mut Ledger, call: &Call) -> Outcome {
    let found = spend_code(ledger, call)?;
    let mut fields = named(&found.person, "userid", "openid");
    if let Some(ticket) = found.user_ticket {
        fields["user_ticket"] = json!(ticket);
    }
    Ok(fields)
}

/// `GET /cgi-bin/user/getuserinfo`, the older form: other letters, more fields.
pub fn legacy_user_info(ledger: &mut Ledger, call: &Call) -> Outcome {
    let found = spend_code(ledger, call)?;
    let mut fields = named(&found.person, "UserId", "OpenId");
    fields["DeviceId"] = json!("");
    if let Some(ticket) = found.user_ticket {
        fields["user_ticket"] = json!(ticket);
        fields["expires_in"] = json!(TICKET_LIFETIME.as_secs());
    }
    Ok(fields)
}

fn named(person: &Person, member: &str, outsider: &str) -> Value {
    match person.kind {
        Kind::Active | Kind::Disabled | Kind::NotActivated | Kind::Linked => json!({ member: person.identifier() }),
        Kind::Outsider => json!({ outsider: person.openid() }),
        Kind::Customer => json!({ outsider: person.openid(), "external_userid": person.external_userid() }),
    }
}

/// Visible or not, a member is named; only the ticket wants visibility. What is refused stays unspent.
fn spend_code(ledger: &mut Ledger, call: &Call) -> Result<Identified, Refusal> {
    let app = app(ledger, call)?;
    let code = call.get("code").ok_or(CODE_MISSING)?;
    let now = ledger.now();
    let grant = ledger.codes.look_up(code, app, now).ok_or(INVALID_CODE)?.clone();
    if !ledger.switches.trusts(app, &grant.domain) {
        return Err(DOMAIN_NOT_TRUSTED);
    }
    ledger.codes.spend(code);
    let person = Person::new(grant.member, &ledger.switches);
    let shows = grant.scope == Scope::PrivateInfo && person.shows_private_info(app, &ledger.switches);
    let user_ticket = shows.then(|| ledger.codes.give_ticket(grant.member, app, now));
    Ok(Identified { person, user_ticket })
}

/// `POST /cgi-bin/auth/getuserdetail`: what the member agreed to show. Their name is not among it.
pub fn user_detail(ledger: &mut Ledger, call: &Call) -> Outcome {
    let app = app(ledger, call)?;
    let body = call.body()?;
    let ticket = body["user_ticket"].as_str().ok_or(INVALID_USER_TICKET)?;
    let member = match ledger.codes.ticket(ticket, app, ledger.now()) {
        TicketState::Of(member) => member,
        TicketState::Expired => return Err(USER_TICKET_EXPIRED),
        TicketState::Unknown => return Err(INVALID_USER_TICKET),
    };
    let person = Person::new(member, &ledger.switches);
    if !person.shows_private_info(app, &ledger.switches) {
        return Err(MEMBER_OUT_OF_RANGE);
    }
    let mut fields = private_fields(ledger, &person);
    fields["userid"] = json!(member.userid);
    Ok(fields)
}

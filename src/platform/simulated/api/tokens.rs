//! Application tokens, and the addresses that firewalls ask for.

use serde_json::json;

use super::super::ledger::Ledger;
use super::super::ledger::tokens::Holder;
use super::super::members::{APPS, CORP_ID};
use super::super::refusal::{CORPID_MISSING, INVALID_CORPID, INVALID_CREDENTIAL, SECRET_MISSING};
use super::{Call, Outcome, holder};

/// `GET /cgi-bin/gettoken`. The caller's address is not looked at here: the allow-list is reported to
/// concern the other calls only.
pub fn give(ledger: &mut Ledger, call: &Call) -> Outcome {
    let corp_id = call.get("corpid").ok_or(CORPID_MISSING)?;
    let secret = call.get("corpsecret").ok_or(SECRET_MISSING)?;
    if corp_id != CORP_ID {
        return Err(INVALID_CORPID);
    }
    let app = APPS.iter().find(|app| app.secret == secret).ok_or(INVALID_CREDENTIAL)?;
    let now = ledger.now();
    let (token, left) = ledger.tokens.give(Holder { app, corp_id: CORP_ID }, &ledger.switches, now);
    Ok(json!({ "access_token": token, "expires_in": left.as_secs() }))
}

/// `GET /cgi-bin/getcallbackip` and `GET /cgi-bin/get_api_domain_ip`
pub fn addresses(ledger: &mut Ledger, call: &Call) -> Outcome {
    holder(ledger, call)?;
    Ok(json!({ "ip_list": ["127.0.0.1"] }))
}

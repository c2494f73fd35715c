//! Fourth phase: from a token to the live session behind it. CachedSession tokens cost one lookup; unknown
//! ones are checked cheapest first and reach the store only with a good signature.

use std::sync::Arc;

use super::credentials::Credential;
use super::route::Target;
use super::{Caller, Gate};
use crate::domain::clock::Timestamp;
use crate::domain::session::Stage;
use crate::endpoints::OwnAccess;
use crate::error::Error;
use crate::rules::{Access, Mode};
use crate::sessions::CachedSession;

/// Whether a target can do without a caller.
enum Need {
    /// A valid token, or a refusal.
    Caller,
    /// A valid token is used, anything else is passed over: a stale token must not keep a page from loading.
    Nobody,
}

impl Need {
    /// Who a valid token's session is here. Where nobody is needed a half-authenticated one is nobody: upstreams
    /// must not take it for the person.
    fn caller(self, known: Arc<CachedSession>) -> Caller {
        match (self, known.session.stage) {
            (Need::Nobody, Stage::OtpBinding | Stage::Spent) => Caller::Anonymous,
            (Need::Nobody, Stage::Full) | (Need::Caller, _) => Caller::SignedIn(known),
        }
    }
}

/// The caller of a request.
pub async fn caller(gate: &Gate, target: &Target, credential: Credential<'_>, now: Timestamp) -> Result<Caller, Error> {
    let need = match target {
        Target::Own(route) if route.access == OwnAccess::Anyone => return Ok(Caller::Anonymous),
        Target::Own(_) => Need::Caller,
        // A rule in shadow mode refuses nobody, not even for want of a token.
        Target::Rule(rule) if rule.access == Access::Public || rule.mode == Mode::Shadow => Need::Nobody,
        Target::Rule(_) => Need::Caller,
    };
    let Credential::Token(token, source) = credential else {
        return match need {
            Need::Caller => {
                gate.metrics.no_token("refused");
                Err(credential.missing())
            }
            Need::Nobody => Ok(Caller::Anonymous),
        };
    };
    if let Some(known) = gate.live.known(token, now) {
        gate.metrics.token_known();
        return Ok(need.caller(known));
    }
    let judged = match gate.tokens.verify(token, now) {
        // Boxed: few requests ask the store, and the future of every request has room for what it awaits.
        Ok(claims) => Box::pin(gate.live.of_claims(&claims, token, now)).await,
        Err(fault) => Err(Error::InvalidToken(fault)),
    };
    let (result, reason) = match &judged {
        Ok(_) => ("ok", "checked"),
        Err(Error::InvalidToken(fault)) => ("refused", fault.as_str()),
        Err(_) => ("failed", "store"),
    };
    gate.metrics.token_judged(result, reason, source.as_str());
    match (judged, need) {
        (Ok(known), need) => Ok(need.caller(known)),
        (Err(_), Need::Nobody) => Ok(Caller::Anonymous),
        (Err(error), Need::Caller) => Err(error),
    }
}

//! Phase 4: finds the live session behind a token. A cached token costs one lookup; any other is verified cheapest
//! check first, and only a valid signature causes a read of the store.

use std::net::IpAddr;
use std::sync::Arc;

use super::credentials::Credential;
use super::route::Target;
use super::{Caller, Gate};
use crate::domain::clock::Timestamp;
use crate::domain::rate::Charged;
use crate::domain::session::{Session, Stage};
use crate::endpoints::OwnAccess;
use crate::error::{Error, TokenFault};
use crate::rules::{Access, Mode};
use crate::sessions::CachedSession;

/// What a target does with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenUse {
    /// The token is not read.
    Ignored,
    /// A valid token identifies the caller, an invalid one is ignored: a stale token must not keep a public page
    /// from loading.
    Optional,
    /// A missing or invalid token is refused.
    Required,
}

impl TokenUse {
    fn of(target: &Target) -> Self {
        match target {
            Target::Own { route, .. } if route.access == OwnAccess::Anyone => TokenUse::Ignored,
            Target::Preflight { .. } | Target::UpstreamPreflight(_) => TokenUse::Ignored,
            Target::Rule(rule) if rule.access == Access::Public || rule.mode_for(None) == Mode::Shadow => {
                TokenUse::Optional
            }
            Target::Own { .. } | Target::Rule(_) => TokenUse::Required,
        }
    }

    fn caller(self, known: Arc<CachedSession>) -> Caller {
        match (self, known.session.stage) {
            (TokenUse::Ignored, _) => Caller::Anonymous,
            // Upstreams must not take a half-authenticated session for a signed-in employee.
            (TokenUse::Optional, Stage::OtpBinding | Stage::Spent) => Caller::Anonymous,
            (TokenUse::Optional, Stage::Full) | (TokenUse::Required, _) => Caller::SignedIn(known),
        }
    }
}

/// The caller of a request to `target` with a valid token of `session`, or without a token.
pub(crate) fn caller_of_session(target: &Target, session: Option<Session>) -> Caller {
    let known = session.map(|session| Arc::new(CachedSession::new(session)));
    known.map_or(Caller::Anonymous, |known| TokenUse::of(target).caller(known))
}

/// The caller of a request, if its target ignores tokens or its token was verified before. That is so for most requests.
pub fn known_caller(gate: &Gate, target: &Target, credential: &Credential<'_>, now: Timestamp) -> Option<Caller> {
    let token_use = TokenUse::of(target);
    if token_use == TokenUse::Ignored {
        return Some(Caller::Anonymous);
    }
    let Credential::Token(token, _) = credential else { return None };
    let cached = gate.sessions.cached(token, now)?;
    gate.metrics.count_cached_token();
    Some(token_use.caller(cached))
}

/// Verifies the credential of a request whose caller is not known, and returns the caller.
pub async fn caller(
    gate: &Gate,
    target: &Target,
    credential: Credential<'_>,
    client: IpAddr,
    now: Timestamp,
) -> Result<Caller, Error> {
    let token_use = TokenUse::of(target);
    let credential = credential.checked();
    let Credential::Token(token, source) = credential else {
        if token_use == TokenUse::Optional {
            return Ok(Caller::Anonymous);
        }
        gate.metrics.count_missing_token("refused");
        return Err(credential.missing());
    };
    // It is ASCII, because its characters were checked.
    let token = std::str::from_utf8(token).unwrap_or_default();
    let verified = match gate.sessions.verify(&gate.tokens, token, now) {
        Ok(claims) => gate.sessions.of_claims(&claims, token, now).await,
        Err(fault) => Err(gate.tokens.refusal(fault)),
    };
    let (result, reason) = match &verified {
        Ok(_) => ("ok", "checked"),
        Err(Error::InvalidToken(fault)) => ("refused", fault.as_str()),
        Err(_) => ("failed", "store"),
    };
    gate.metrics.count_verified_token(result, reason, source.as_str());
    match verified {
        Ok(known) => Ok(token_use.caller(known)),
        Err(_) if token_use == TokenUse::Optional => Ok(Caller::Anonymous),
        Err(Error::InvalidToken(fault)) if fault.is_forged() => Err(refuse_forged(gate, client, fault)),
        Err(error) => Err(error),
    }
}

/// The refusal of a token that the gateway can never have issued. It counts against the client's address; valid tokens
/// of the same address are not asked about the count.
fn refuse_forged(gate: &Gate, client: IpAddr, fault: TokenFault) -> Error {
    let Some(rate) = &gate.invalid_tokens else { return Error::InvalidToken(fault) };
    match rate.charge_locally(&*gate.counters, None, client, gate.clock.running()) {
        Charged::Admitted { .. } => Error::InvalidToken(fault),
        Charged::Refused { retry_after } => {
            gate.metrics.count_limit_reached("invalid_tokens");
            rate.exceeded(retry_after)
        }
    }
}

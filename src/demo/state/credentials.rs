//! Application tokens, authorization codes, user tickets and consents that the platform has issued.

use std::collections::HashMap;
use std::time::Duration;

use crate::demo::members::{Application, Member};
use crate::demo::switches::Switches;
use crate::domain::clock::Timestamp;
use crate::domain::secret::random_name;

/// Ended tokens that are kept, to tell them from tokens that were never issued.
const KEPT_TOKENS: usize = 64;

/// Lifetime of a `user_ticket`.
pub const USER_TICKET_LIFETIME: Duration = Duration::from_secs(1800);

/// How long a member's consent lasts.
const CONSENT_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// The application that a token was issued to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenHolder {
    pub application: &'static Application,
    /// The corporation whose contacts the token can read.
    pub corp_id: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
pub enum TokenState {
    Valid(TokenHolder),
    Expired,
    Revoked,
    Unknown,
}

struct SimulatedAppToken {
    token: String,
    holder: TokenHolder,
    expires_at: Timestamp,
    revoked: bool,
}

#[derive(Default)]
pub struct IssuedTokens {
    issued: Vec<SimulatedAppToken>,
}

impl IssuedTokens {
    /// Returns the holder's token and its remaining lifetime: the same token while it is valid, unless they rotate.
    pub fn issue(&mut self, holder: TokenHolder, switches: &Switches, now: Timestamp) -> (String, Duration) {
        let valid =
            |issued: &&mut SimulatedAppToken| issued.holder == holder && !issued.revoked && now < issued.expires_at;
        for issued in self.issued.iter_mut().filter(valid) {
            if !switches.rotate_tokens {
                return (issued.token.clone(), now.until(issued.expires_at));
            }
            issued.revoked = true;
        }
        if self.issued.len() >= KEPT_TOKENS {
            self.issued.remove(0);
        }
        let (token, lifetime) = (random_name(64), switches.token_lifetime);
        let expires_at = now.plus(lifetime);
        self.issued.push(SimulatedAppToken { token: token.clone(), holder, expires_at, revoked: false });
        (token, lifetime)
    }

    pub fn state(&self, token: &str, now: Timestamp) -> TokenState {
        match self.issued.iter().find(|issued| issued.token == token) {
            Some(issued) if issued.revoked => TokenState::Revoked,
            Some(issued) if now < issued.expires_at => TokenState::Valid(issued.holder),
            Some(_) => TokenState::Expired,
            None => TokenState::Unknown,
        }
    }

    /// Revokes every token, as the platform may at any time.
    pub fn revoke_all(&mut self) {
        for issued in &mut self.issued {
            issued.revoked = true;
        }
    }
}

/// The scope of an authorize URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizeScope {
    /// The identifier only; the platform asks for no consent.
    Base,
    /// Also avatar, mobile number and email; the platform asks the member for consent.
    PrivateInfo,
}

/// What a code was issued for.
#[derive(Debug, Clone)]
pub struct CodeGrant {
    pub member: &'static Member,
    /// The application in the authorize URL; without one, any of the corporation's can use the code.
    pub application: Option<&'static Application>,
    /// The domain that the browser was redirected to.
    pub domain: String,
    pub scope: AuthorizeScope,
}

struct IssuedCode {
    grant: CodeGrant,
    expires_at: Timestamp,
}

struct IssuedUserTicket {
    member: &'static Member,
    application: &'static Application,
    expires_at: Timestamp,
}

#[derive(Debug, PartialEq, Eq)]
pub enum UserTicketState {
    Valid(&'static Member),
    Expired,
    /// Never issued, or issued to another application.
    Unknown,
}

#[derive(Default)]
pub struct AuthCodes {
    codes: HashMap<String, IssuedCode>,
    tickets: HashMap<String, IssuedUserTicket>,
    consents: HashMap<(&'static str, &'static str), Timestamp>,
}

impl AuthCodes {
    pub fn issue(&mut self, grant: CodeGrant, lifetime: Duration, now: Timestamp) -> String {
        self.codes.retain(|_, issued| now < issued.expires_at);
        let code = random_name(43);
        self.codes.insert(code.clone(), IssuedCode { grant, expires_at: now.plus(lifetime) });
        code
    }

    /// Whether a code is neither used nor expired.
    pub fn is_valid(&self, code: &str, now: Timestamp) -> bool {
        self.codes.get(code).is_some_and(|issued| now < issued.expires_at)
    }

    /// Returns the grant of a valid code that this application can use.
    pub fn grant(&self, code: &str, application: &'static Application, now: Timestamp) -> Option<&CodeGrant> {
        let grant = &self.codes.get(code).filter(|issued| now < issued.expires_at)?.grant;
        grant.application.is_none_or(|bound| bound == application).then_some(grant)
    }

    /// Marks a code as used.
    pub fn consume(&mut self, code: &str) {
        self.codes.remove(code);
    }

    pub fn issue_ticket(
        &mut self,
        member: &'static Member,
        application: &'static Application,
        now: Timestamp,
    ) -> String {
        let ticket = random_name(86);
        let expires_at = now.plus(USER_TICKET_LIFETIME);
        self.tickets.insert(ticket.clone(), IssuedUserTicket { member, application, expires_at });
        ticket
    }

    /// Looks a ticket up; it can be used more than once.
    pub fn ticket(&self, ticket: &str, application: &'static Application, now: Timestamp) -> UserTicketState {
        match self.tickets.get(ticket) {
            Some(issued) if issued.application != application => UserTicketState::Unknown,
            Some(issued) if now < issued.expires_at => UserTicketState::Valid(issued.member),
            Some(_) => UserTicketState::Expired,
            None => UserTicketState::Unknown,
        }
    }

    pub fn record_consent(&mut self, member: &'static Member, application: &'static Application, now: Timestamp) {
        self.consents.insert((member.userid, application.agent_id), now.plus(CONSENT_LIFETIME));
    }

    pub fn has_consent(&self, member: &'static Member, application: &'static Application, now: Timestamp) -> bool {
        self.consents.get(&(member.userid, application.agent_id)).is_some_and(|until| now < *until)
    }
}

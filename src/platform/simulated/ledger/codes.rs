//! Codes, the tickets that some of them bring, and who agreed to show what.

use std::collections::HashMap;
use std::time::Duration;

use crate::domain::clock::Timestamp;
use crate::domain::secret::random_name;

use super::super::members::{App, Member};

/// How long a `user_ticket` lives.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(1800);

/// How long somebody is not asked again what may be shown.
pub const CONSENT_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// What an authorize URL asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Who it is; nobody is asked.
    Base,
    /// Picture, telephone and mail too; the member is asked.
    PrivateInfo,
}

/// What a code stands for.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Who agreed.
    pub member: &'static Member,
    /// The application that the authorize URL named; none: any of the corporation's may spend it.
    pub app: Option<&'static App>,
    /// Where the browser was sent back to.
    pub domain: String,
    /// What was asked for.
    pub scope: Scope,
}

struct GivenCode {
    grant: Grant,
    expires_at: Timestamp,
}

struct GivenTicket {
    member: &'static Member,
    app: &'static App,
    expires_at: Timestamp,
}

/// What the platform thinks of a `user_ticket`.
#[derive(Debug, PartialEq, Eq)]
pub enum TicketState {
    /// It is about this member.
    Of(&'static Member),
    /// Its time is over.
    Expired,
    /// It was never given, or to another application.
    Unknown,
}

/// All of them.
#[derive(Default)]
pub struct Codes {
    codes: HashMap<String, GivenCode>,
    tickets: HashMap<String, GivenTicket>,
    consents: HashMap<(&'static str, &'static str), Timestamp>,
}

impl Codes {
    /// A code for a member who agreed.
    pub fn give(&mut self, grant: Grant, lifetime: Duration, now: Timestamp) -> String {
        self.codes.retain(|_, given| now < given.expires_at);
        let code = random_name(43);
        self.codes.insert(code.clone(), GivenCode { grant, expires_at: now.plus(lifetime) });
        code
    }

    /// Whether a code could be spent.
    pub fn is_good(&self, code: &str, now: Timestamp) -> bool {
        self.codes.get(code).is_some_and(|given| now < given.expires_at)
    }

    /// What a code stands for, if this application could spend it now.
    pub fn look_up(&self, code: &str, app: &'static App, now: Timestamp) -> Option<&Grant> {
        let grant = &self.codes.get(code).filter(|given| now < given.expires_at)?.grant;
        grant.app.is_none_or(|bound| bound == app).then_some(grant)
    }

    /// Makes a code worth nothing.
    pub fn spend(&mut self, code: &str) {
        self.codes.remove(code);
    }

    /// A ticket for what a member agreed to show to an application.
    pub fn give_ticket(&mut self, member: &'static Member, app: &'static App, now: Timestamp) -> String {
        let ticket = random_name(86);
        let expires_at = now.plus(TICKET_LIFETIME);
        self.tickets.insert(ticket.clone(), GivenTicket { member, app, expires_at });
        ticket
    }

    /// Whom a ticket is about; it can be asked about again.
    pub fn ticket(&self, ticket: &str, app: &'static App, now: Timestamp) -> TicketState {
        match self.tickets.get(ticket) {
            Some(given) if given.app != app => TicketState::Unknown,
            Some(given) if now < given.expires_at => TicketState::Of(given.member),
            Some(_) => TicketState::Expired,
            None => TicketState::Unknown,
        }
    }

    /// Remembers that a member agreed to show an application what it asks for.
    pub fn agree(&mut self, member: &'static Member, app: &'static App, now: Timestamp) {
        self.consents.insert((member.userid, app.agent_id), now.plus(CONSENT_LIFETIME));
    }

    /// Whether that was lately.
    pub fn has_agreed(&self, member: &'static Member, app: &'static App, now: Timestamp) -> bool {
        self.consents.get(&(member.userid, app.agent_id)).is_some_and(|until| now < *until)
    }
}

//! What the simulated platform remembers: the tokens and codes that it gave, and who called.

use std::collections::HashMap;
use std::time::Duration;

use super::members::Member;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::secret::random_name;

/// How long an application's token lives.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(7200);

/// How long a code lives.
pub const CODE_LIFETIME: Duration = Duration::from_secs(300);

/// Tokens that are remembered after their end, to be told from those never given.
const OLD_TOKENS: usize = 16;

/// An application of the corporation.
#[derive(Debug, PartialEq, Eq)]
pub struct App {
    /// Its `agentid`.
    pub agent_id: &'static str,
    /// Its secret.
    pub secret: &'static str,
}

/// What the platform thinks of a token.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenState {
    /// It is this application's.
    Of(&'static App),
    /// It was somebody's.
    Expired,
    /// It was never given.
    Unknown,
}

struct GivenToken {
    token: String,
    app: &'static App,
    expires_at: Timestamp,
}

struct GivenCode {
    member: &'static Member,
    /// The application that the authorize URL named; none: any of the corporation's may spend it.
    app: Option<&'static App>,
    expires_at: Timestamp,
}

/// Everything that changes.
pub struct Ledger {
    clock: Clock,
    tokens: Vec<GivenToken>,
    codes: HashMap<String, GivenCode>,
    calls: HashMap<&'static str, u64>,
}

impl Ledger {
    /// Nothing yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, tokens: Vec::new(), codes: HashMap::new(), calls: HashMap::new() }
    }

    /// The application's token and how long it still lives: the same one while it does.
    pub fn give_token(&mut self, app: &'static App) -> (String, Duration) {
        let now = self.clock.now();
        if let Some(given) = self.tokens.iter().find(|given| given.app == app && now < given.expires_at) {
            return (given.token.clone(), now.until(given.expires_at));
        }
        if self.tokens.len() >= OLD_TOKENS {
            self.tokens.remove(0);
        }
        let token = random_name(64);
        self.tokens.push(GivenToken { token: token.clone(), app, expires_at: now.plus(TOKEN_LIFETIME) });
        (token, TOKEN_LIFETIME)
    }

    /// Whose token this is.
    pub fn token_state(&self, token: &str) -> TokenState {
        match self.tokens.iter().find(|given| given.token == token) {
            Some(given) if self.clock.now() < given.expires_at => TokenState::Of(given.app),
            Some(_) => TokenState::Expired,
            None => TokenState::Unknown,
        }
    }

    /// Takes every token back, as the platform may at any time.
    pub fn withdraw_tokens(&mut self) {
        self.tokens.clear();
    }

    /// A code for a member who agreed.
    pub fn give_code(&mut self, member: &'static Member, app: Option<&'static App>) -> String {
        let now = self.clock.now();
        self.codes.retain(|_, given| now < given.expires_at);
        let code = random_name(43);
        self.codes.insert(code.clone(), GivenCode { member, app, expires_at: now.plus(CODE_LIFETIME) });
        code
    }

    /// Whose code this is; it is worth nothing afterwards. Another application's stays unspent.
    pub fn spend_code(&mut self, code: &str, app: &'static App) -> Option<&'static Member> {
        let given = self.codes.get(code)?;
        if given.app.is_some_and(|bound| bound != app) {
            return None;
        }
        let given = self.codes.remove(code)?;
        (self.clock.now() < given.expires_at).then_some(given.member)
    }

    /// Counts a call.
    pub fn count(&mut self, path: &'static str) {
        *self.calls.entry(path).or_default() += 1;
    }

    /// How often a path was called.
    pub fn calls(&self, path: &str) -> u64 {
        self.calls.get(path).copied().unwrap_or(0)
    }

    /// The time, for what is stamped.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

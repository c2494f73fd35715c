//! Application tokens.

use std::time::Duration;

use crate::domain::clock::Timestamp;
use crate::domain::secret::random_name;

use super::super::members::App;
use super::super::switches::Switches;

/// Tokens that are remembered after their end, to be told from those never given.
const REMEMBERED: usize = 64;

/// Whom a token was given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The application.
    pub app: &'static App,
    /// The corporation whose contacts it may read.
    pub corp_id: &'static str,
}

/// What the platform thinks of a token.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenState {
    /// It is good.
    Of(Holder),
    /// Its time is over.
    Expired,
    /// It was taken back.
    Withdrawn,
    /// It was never given.
    Unknown,
}

struct Given {
    token: String,
    holder: Holder,
    expires_at: Timestamp,
    withdrawn: bool,
}

/// All tokens.
#[derive(Default)]
pub struct Tokens {
    given: Vec<Given>,
}

impl Tokens {
    /// The holder's token and how long it still lives: the same one while it does, unless they rotate.
    pub fn give(&mut self, holder: Holder, switches: &Switches, now: Timestamp) -> (String, Duration) {
        let live = |given: &&mut Given| given.holder == holder && !given.withdrawn && now < given.expires_at;
        for given in self.given.iter_mut().filter(live) {
            if !switches.rotate_tokens {
                return (given.token.clone(), now.until(given.expires_at));
            }
            given.withdrawn = true;
        }
        if self.given.len() >= REMEMBERED {
            self.given.remove(0);
        }
        let (token, lifetime) = (random_name(64), switches.token_lifetime);
        let expires_at = now.plus(lifetime);
        self.given.push(Given { token: token.clone(), holder, expires_at, withdrawn: false });
        (token, lifetime)
    }

    /// Whose token this is.
    pub fn state(&self, token: &str, now: Timestamp) -> TokenState {
        match self.given.iter().find(|given| given.token == token) {
            Some(given) if given.withdrawn => TokenState::Withdrawn,
            Some(given) if now < given.expires_at => TokenState::Of(given.holder),
            Some(_) => TokenState::Expired,
            None => TokenState::Unknown,
        }
    }

    /// Takes every token back, as the platform may at any time.
    pub fn withdraw(&mut self) {
        for given in &mut self.given {
            given.withdrawn = true;
        }
    }
}

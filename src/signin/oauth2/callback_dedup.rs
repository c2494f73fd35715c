//! CallbackDedup that come twice: the platform's clients are known to ask for the same address again,
//! while its codes can be used once. The second asker gets the first one's answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::oauth2::{Flow, Return};
use crate::domain::clock::Timestamp;
use crate::domain::secret::Digest;

/// How long an answer is kept: the second call comes within seconds.
const KEPT: Duration = Duration::from_secs(60);

/// Most answers kept; more callbacks in a minute than this are no people.
const MOST: usize = 20_000;

/// Most flows remembered; each is, for the ten minutes of its life.
const MOST_FLOWS: usize = 100_000;

/// Where an answer will stand; the first to come makes it, the others wait for it.
type Place = Arc<OnceCell<Arc<Return>>>;

/// Answers given, and which code each flow was used with. Codes are kept as prints only.
#[derive(Default)]
pub(super) struct CallbackDedup {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    answers: HashMap<Digest, (Timestamp, Place)>,
    flows: HashMap<Digest, (Timestamp, Digest)>,
    /// When room was last looked for.
    looked: Option<Timestamp>,
}

impl Kept {
    /// Looks for room when there is none, but not more often than once a second: a flood must not make every
    /// call pay for all the others.
    fn make_room(&mut self, now: Timestamp) {
        let full = self.answers.len() >= MOST || self.flows.len() >= MOST_FLOWS;
        if full && self.looked.is_none_or(|looked| now >= looked.plus(Duration::from_secs(1))) {
            self.looked = Some(now);
            self.forget_over(now);
        }
    }

    fn forget_over(&mut self, now: Timestamp) {
        self.answers.retain(|_, (end, _)| now < *end);
        self.flows.retain(|_, (end, _)| now < *end);
    }
}

impl CallbackDedup {
    /// The place of the answer for these words (code, state, flow). The first to come fills it.
    pub(super) fn answer(&self, words: &[&str], now: Timestamp) -> Place {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.make_room(now);
        if kept.answers.len() >= MOST {
            // A flood: each call is answered for itself, and the platform still takes a code only once.
            return Place::default();
        }
        let (end, cell) = kept.answers.entry(Digest::of(words)).or_insert_with(|| (now.plus(KEPT), Arc::default()));
        if now >= *end {
            (*end, *cell) = (now.plus(KEPT), Arc::default());
        }
        cell.clone()
    }

    /// Forgets an answer that may be another one next time.
    pub(super) fn forget(&self, words: &[&str]) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).answers.remove(&Digest::of(words));
    }

    /// Forgets what is over. Answers hold tokens, so they do not stay longer than they are of use.
    pub(super) fn sweep(&self, now: Timestamp) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.forget_over(now);
    }

    /// The flow that a code belongs to, out of those that a browser has begun, oldest first: the one that
    /// has this code already, else a fresh one, best of the page that the browser comes from. A flow is
    /// tied to its first code, so that a stranger's code cannot be slipped into it later.
    pub(super) fn choose_flow(&self, flows: Vec<Flow>, page: Option<&str>, code: &str, now: Timestamp) -> Option<Flow> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.make_room(now);
        let code = Digest::of(&[code]);
        let used = |flow: &Flow| kept.flows.get(&Digest::of(&[&flow.nonce])).map(|(_, code)| code);
        let mut fresh = Vec::new();
        for flow in flows {
            match used(&flow) {
                Some(other) if *other == code => return Some(flow),
                Some(_) => {}
                None => fresh.push(flow),
            }
        }
        let from_page = fresh.iter().rposition(|flow| Some(flow.page()) == page);
        if kept.flows.len() >= MOST_FLOWS {
            // A flood: what cannot be tied to its code is not believed.
            return None;
        }
        let chosen = fresh.swap_remove(from_page.or_else(|| fresh.len().checked_sub(1))?);
        kept.flows.insert(Digest::of(&[&chosen.nonce]), (chosen.end, code));
        Some(chosen)
    }
}

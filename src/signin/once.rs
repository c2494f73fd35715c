//! Callbacks that come twice: the platform's clients are known to ask for the same address again,
//! while its codes can be used once. The second asker gets the first one's answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use tokio::sync::OnceCell;

use super::oauth2::{Flow, Return};
use crate::domain::clock::Timestamp;

/// How long an answer is kept: the second call comes within seconds.
const KEPT: Duration = Duration::from_secs(60);

/// Most answers kept; more callbacks in a minute than this are no people.
const MOST: usize = 20_000;

type Print = [u8; 32];

/// Where an answer will stand; the first to come makes it, the others wait for it.
type Place = Arc<OnceCell<Arc<Return>>>;

/// Answers given, and which code each flow was used with.
#[derive(Default)]
pub(super) struct Callbacks {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    answers: HashMap<Print, (Timestamp, Place)>,
    flows: HashMap<Print, (Timestamp, Print)>,
}

impl Callbacks {
    /// The place of the answer for these words (code, state, flow). The first to come fills it.
    pub(super) fn answer(&self, words: &[&str], now: Timestamp) -> Place {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.answers.len() >= MOST {
            kept.answers.retain(|_, (end, _)| now < *end);
        }
        let (end, cell) = kept.answers.entry(print(words)).or_insert_with(|| (now.plus(KEPT), Arc::default()));
        if now >= *end {
            (*end, *cell) = (now.plus(KEPT), Arc::default());
        }
        cell.clone()
    }

    /// The flow that a code belongs to, out of those that a browser has begun, oldest first: the one that
    /// has this code already, else a fresh one, best of the page that the browser comes from. A flow is
    /// tied to its first code, so that a stranger's code cannot be slipped into it later.
    pub(super) fn choose_flow(&self, flows: Vec<Flow>, page: Option<&str>, code: &str, now: Timestamp) -> Option<Flow> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.flows.len() >= MOST {
            kept.flows.retain(|_, (end, _)| now < *end);
        }
        let code = print(&[code]);
        let used = |flow: &Flow| kept.flows.get(&print(&[&flow.nonce])).map(|(_, code)| *code);
        let mut fresh = Vec::new();
        for flow in flows {
            match used(&flow) {
                Some(other) if other == code => return Some(flow),
                Some(_) => {}
                None => fresh.push(flow),
            }
        }
        let from_page = fresh.iter().rposition(|flow| Some(flow.page()) == page);
        let chosen = fresh.swap_remove(from_page.or_else(|| fresh.len().checked_sub(1))?);
        kept.flows.insert(print(&[&chosen.nonce]), (chosen.end, code));
        Some(chosen)
    }
}

/// Codes are kept as digests only.
fn print(words: &[&str]) -> Print {
    let mut context = digest::Context::new(&digest::SHA256);
    for word in words {
        context.update(&(word.len() as u64).to_le_bytes());
        context.update(word.as_bytes());
    }
    let mut print = Print::default();
    print.copy_from_slice(context.finish().as_ref());
    print
}

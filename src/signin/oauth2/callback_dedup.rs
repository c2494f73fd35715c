//! Deduplicates callbacks. The platform's clients are known to request a callback twice, while its codes can be used once,
//! so a repeated request gets the result of the first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::callback::CallbackResult;
use super::flow::Flow;
use crate::domain::clock::Timestamp;
use crate::domain::secret::Digest;

/// How long a result is kept; the repeated request comes within seconds.
const RESULT_LIFETIME: Duration = Duration::from_secs(60);

/// Most results kept; users do not make more callbacks than this in a minute.
const MAX_RESULTS: usize = 20_000;

/// Most flows remembered, each for its lifetime.
const MAX_FLOWS: usize = 100_000;

/// The result of a callback: the first request computes it, the others wait for it.
type ResultCell = Arc<OnceCell<Arc<CallbackResult>>>;

/// Recent results, and the code that each flow was used with. Codes are kept as digests only.
#[derive(Default)]
pub(in crate::signin) struct CallbackDedup {
    state: Mutex<DedupState>,
}

#[derive(Default)]
struct DedupState {
    results: HashMap<Digest, (Timestamp, ResultCell)>,
    flows: HashMap<Digest, (Timestamp, Digest)>,
    last_eviction: Option<Timestamp>,
}

impl DedupState {
    /// Evicts expired entries when a map is full, at most once a second: a flood must not make every request pay for a
    /// scan of the maps.
    fn make_room(&mut self, now: Timestamp) {
        let full = self.results.len() >= MAX_RESULTS || self.flows.len() >= MAX_FLOWS;
        if full && self.last_eviction.is_none_or(|last| now >= last.plus(Duration::from_secs(1))) {
            self.last_eviction = Some(now);
            self.evict_expired(now);
        }
    }

    fn evict_expired(&mut self, now: Timestamp) {
        self.results.retain(|_, (end, _)| now < *end);
        self.flows.retain(|_, (end, _)| now < *end);
    }
}

impl CallbackDedup {
    /// The cell for the result of this key (code, state, flow). The first request fills it.
    pub(super) fn cell(&self, key: &[&str], now: Timestamp) -> ResultCell {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.make_room(now);
        if state.results.len() >= MAX_RESULTS {
            // Under a flood requests are not deduplicated; the platform still accepts a code only once.
            return ResultCell::default();
        }
        let fresh = || (now.plus(RESULT_LIFETIME), ResultCell::default());
        let (end, cell) = state.results.entry(Digest::of(key)).or_insert_with(fresh);
        if now >= *end {
            (*end, *cell) = fresh();
        }
        cell.clone()
    }

    /// Removes a result that may differ next time.
    pub(super) fn forget(&self, key: &[&str]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).results.remove(&Digest::of(key));
    }

    /// Evicts expired entries. Results hold tokens, so they must not outlive their use.
    pub(super) fn sweep(&self, now: Timestamp) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).evict_expired(now);
    }

    /// The flow that a code belongs to, out of a browser's flows (oldest first): the one that already has this code,
    /// else an unused one, preferably of the page that the browser comes from. A flow is tied to its first code, so
    /// that an attacker's code cannot be injected into it later.
    pub(super) fn choose_flow(&self, flows: Vec<Flow>, page: Option<&str>, code: &str, now: Timestamp) -> Option<Flow> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.make_room(now);
        let code = Digest::of(&[code]);
        let code_of = |flow: &Flow| state.flows.get(&Digest::of(&[&flow.nonce])).map(|(_, code)| code);
        let mut unused = Vec::new();
        for flow in flows {
            match code_of(&flow) {
                Some(used) if *used == code => return Some(flow),
                Some(_) => {}
                None => unused.push(flow),
            }
        }
        let from_page = unused.iter().rposition(|flow| Some(flow.page()) == page);
        if state.flows.len() >= MAX_FLOWS {
            // Under a flood a flow that cannot be tied to its code is not trusted.
            return None;
        }
        let chosen = unused.swap_remove(from_page.or_else(|| unused.len().checked_sub(1))?);
        state.flows.insert(Digest::of(&[&chosen.nonce]), (chosen.end, code));
        Some(chosen)
    }
}

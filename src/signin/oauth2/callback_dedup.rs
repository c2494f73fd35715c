//! Deduplicates callbacks. The platform's clients are known to request a callback twice, while its codes can be used once,
//! so a repeated request gets the result of the first.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::callback::CallbackResult;
use super::flow::Flow;
use crate::domain::network::Network;
use crate::domain::secret::Digest;
use crate::signin::bounded_table::BoundedTable;

/// How long a result is kept; the repeated request comes within seconds.
const RESULT_LIFETIME: Duration = Duration::from_secs(60);

/// Most results kept; users do not make more callbacks than this in a minute.
const MAX_RESULTS: usize = 20_000;

/// Most flows remembered, each for the lifetime of its cookie.
const MAX_FLOWS: usize = 100_000;

/// The result of a callback: the first request computes it, the others wait for it.
type ResultCell = Arc<OnceCell<Arc<CallbackResult>>>;

/// Recent results, and the code that each flow was used with. Codes are kept as digests only.
pub(in crate::signin) struct CallbackDedup {
    state: Mutex<DedupState>,
    flow_lifetime: Duration,
}

struct DedupState {
    results: BoundedTable<ResultCell>,
    /// The digest of the code of each flow.
    flows: BoundedTable<Digest>,
}

impl CallbackDedup {
    /// Remembers flows for `flow_lifetime`.
    pub(in crate::signin) fn new(flow_lifetime: Duration) -> Self {
        let (results, flows) = (BoundedTable::new(MAX_RESULTS), BoundedTable::new(MAX_FLOWS));
        Self { state: Mutex::new(DedupState { results, flows }), flow_lifetime }
    }

    /// The cell for the result of this key (code, state, flow). The first request fills it.
    pub(super) fn cell(&self, key: &[&str], now: Duration, network: Network) -> ResultCell {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Digest::of(key);
        if let Some(cell) = state.results.get(&key, now) {
            return cell.clone();
        }
        let cell = ResultCell::default();
        state.results.insert(key, cell.clone(), now + RESULT_LIFETIME, network);
        cell
    }

    /// Keeps a result and its flow longer than those of codes that the platform did not confirm.
    pub(super) fn prove(&self, key: &[&str], flow: Option<&str>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.results.prove(&Digest::of(key));
        flow.into_iter().for_each(|nonce| state.flows.prove(&Digest::of(&[nonce])));
    }

    /// Removes a result that may differ next time.
    pub(super) fn forget(&self, key: &[&str]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).results.remove(&Digest::of(key));
    }

    /// Evicts expired entries. Results hold tokens, so they must not outlive their use.
    pub(super) fn sweep(&self, now: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.results.sweep(now);
        state.flows.sweep(now);
    }

    /// The flow that a code belongs to, out of a browser's flows (oldest first): the one that already has this code,
    /// else an unused one, preferably of the page that the browser comes from. A flow is tied to its first code, so
    /// that an attacker's code cannot be injected into it later.
    pub(super) fn choose_flow(
        &self,
        flows: Vec<Flow>,
        page: Option<&str>,
        code: &str,
        now: Duration,
        network: Network,
    ) -> Option<Flow> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let code = Digest::of(&[code]);
        let mut unused = Vec::new();
        for flow in flows {
            match state.flows.get(&Digest::of(&[&flow.nonce]), now) {
                Some(used) if *used == code => return Some(flow),
                Some(_) => {}
                None => unused.push(flow),
            }
        }
        let from_page = unused.iter().rposition(|flow| Some(flow.page()) == page);
        let chosen = unused.swap_remove(from_page.or_else(|| unused.len().checked_sub(1))?);
        state.flows.insert(Digest::of(&[&chosen.nonce]), code, now + self.flow_lifetime, network);
        Some(chosen)
    }
}

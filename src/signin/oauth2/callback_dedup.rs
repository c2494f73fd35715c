//! Deduplicates callbacks. The platform's clients are known to request a callback twice, while its codes can be used once,
//! so a repeated request gets the result of the first, on whichever gateway it arrives.
//!
//! The first request claims the callback and computes its result; the others ask the store again until the result is
//! there. Asking again takes the place of an announcement: it happens a few times a day, for some hundred milliseconds.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use super::flow::Flow;
use super::stored_result::StoredResult;
use crate::domain::network::Network;
use crate::domain::secret::{Digest, random_name};
use crate::domain::write::WriteOutcome;
use crate::error::{Error, Part, chain};
use crate::store::StoreError;
use crate::store::once::{ClaimKey, ClaimKind, ClaimOutcome, OnceStore};
use crate::token::vault::Vault;

/// How long a result is kept; the repeated request comes within seconds.
const RESULT_LIFETIME: Duration = Duration::from_secs(60);

/// Longest wait for the result of the first request: four calls of the platform that take as long as they may.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The first and the longest pause between two looks for the result. They double, so that none is longer than the wait
/// before it.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Begins the value of a claim whose result is not known yet. No encrypted result begins so.
const PENDING: &str = "pending.";

/// Recent results, and the code that each flow was used with. Codes are kept as digests only.
pub(in crate::signin) struct CallbackDedup {
    pub(in crate::signin) claims: Arc<dyn OnceStore>,
    /// Encrypts results: one holds what confirms a scan or binds an account.
    pub(in crate::signin) vault: Arc<Vault>,
    pub(in crate::signin) flow_lifetime: Duration,
}

/// A request's part in a callback.
pub(super) enum CallbackTurn {
    /// It computes the result.
    First(PendingCallback),
    /// It gets the result of an earlier request.
    Repeated(StoredResult),
}

impl CallbackDedup {
    /// Claims the callback of these parts (code, state, flow), or waits for the result of the request that did.
    pub(super) async fn begin(&self, parts: &[&str], network: Network) -> Result<CallbackTurn, Error> {
        let key = ClaimKey { kind: ClaimKind::Callback, digest: Digest::of(parts), network };
        let mark = format!("{PENDING}{}", random_name(22));
        let deadline = tokio::time::Instant::now() + LONGEST_WAIT;
        let [mut pause, longest_pause] = PAUSES;
        loop {
            match self.claims.claim(&key, &mark, RESULT_LIFETIME).await? {
                ClaimOutcome::First => {
                    let (claims, vault) = (self.claims.clone(), self.vault.clone());
                    return Ok(CallbackTurn::First(PendingCallback { claims, vault, key: Some(key), mark }));
                }
                ClaimOutcome::Taken(value) if !value.starts_with(PENDING) => {
                    let result = decrypt(&self.vault, &value, &key)
                        .ok_or_else(|| Error::unexpected(Part::Store, "the result of a callback cannot be read"))?;
                    return Ok(CallbackTurn::Repeated(result));
                }
                ClaimOutcome::Taken(_) => {}
            }
            if tokio::time::Instant::now() >= deadline {
                let cause = "the first request of this callback is not answered yet";
                return Err(Error::Unavailable { part: Part::Gateway, cause: Some(cause.into()) });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest_pause);
        }
    }

    /// The flow that a code belongs to, out of a browser's flows (oldest first): the one that already has this code,
    /// else an unused one, preferably of the page that the browser comes from. A flow is tied to its first code, so
    /// that an attacker's code cannot be injected into it later.
    pub(super) async fn choose_flow(
        &self,
        mut flows: Vec<Flow>,
        page: Option<&str>,
        code: &str,
        network: Network,
    ) -> Result<Option<Flow>, Error> {
        let code = Digest::of(&[code]);
        let keys: Vec<ClaimKey> = flows.iter().map(|flow| flow_key(flow, network)).collect();
        let used = try_join_all(keys.iter().map(|key| self.claims.claimed(key))).await?;
        if let Some(own) = used.iter().position(|used| used.as_deref() == Some(code.as_str())) {
            return Ok(Some(flows.swap_remove(own)));
        }
        let mut unused: Vec<Flow> =
            flows.into_iter().zip(used).filter(|(_, used)| used.is_none()).map(|(flow, _)| flow).collect();
        // The newest of the page last, and before it the newest of other pages.
        unused.sort_by_key(|flow| Some(flow.page()) == page);
        while let Some(flow) = unused.pop() {
            match self.claims.claim(&flow_key(&flow, network), code.as_str(), self.flow_lifetime).await? {
                ClaimOutcome::First => return Ok(Some(flow)),
                ClaimOutcome::Taken(first) if first == code.as_str() => return Ok(Some(flow)),
                // Another callback came first.
                ClaimOutcome::Taken(_) => {}
            }
        }
        Ok(None)
    }

    /// Keeps a flow longer than those of codes that the platform did not confirm.
    pub(super) async fn prove_flow(&self, flow: &Flow, network: Network) {
        ignore(self.claims.prove(&flow_key(flow, network)).await);
    }
}

/// A callback that this request has claimed and whose result the others wait for. If it is dropped without a result,
/// the next of them computes it.
pub(super) struct PendingCallback {
    claims: Arc<dyn OnceStore>,
    vault: Arc<Vault>,
    /// `None` once the claim has ended.
    key: Option<ClaimKey>,
    mark: String,
}

impl PendingCallback {
    /// Stores the result for repeated requests.
    pub(super) async fn settle(mut self, result: &StoredResult) {
        let Some(key) = self.key.take() else { return };
        let value = encrypt(&self.vault, result, &key);
        match self.claims.settle(&key, &self.mark, &value, RESULT_LIFETIME).await {
            Ok(WriteOutcome::Applied) => {}
            Ok(WriteOutcome::Conflict) => tracing::debug!("a callback took so long that its claim had ended"),
            Err(error) => ignore(Err(error)),
        }
        if result.is_success() {
            ignore(self.claims.prove(&key).await);
        }
    }

    /// Gives the claim up, so that a repeated request tries again.
    pub(super) async fn release(mut self) {
        if let Some(key) = self.key.take() {
            ignore(self.claims.release(&key, &self.mark).await);
        }
    }
}

impl Drop for PendingCallback {
    fn drop(&mut self) {
        let (Some(key), Ok(runtime)) = (self.key.take(), tokio::runtime::Handle::try_current()) else { return };
        let (claims, mark) = (self.claims.clone(), std::mem::take(&mut self.mark));
        runtime.spawn(async move { ignore(claims.release(&key, &mark).await) });
    }
}

fn flow_key(flow: &Flow, network: Network) -> ClaimKey {
    ClaimKey { kind: ClaimKind::Flow, digest: Digest::of(&[&flow.nonce]), network }
}

fn context(key: &ClaimKey) -> String {
    format!("callback:{}", key.digest.as_str())
}

fn encrypt(vault: &Vault, result: &StoredResult, key: &ClaimKey) -> String {
    vault.encrypt(&serde_json::to_vec(result).unwrap_or_default(), &context(key))
}

fn decrypt(vault: &Vault, value: &str, key: &ClaimKey) -> Option<StoredResult> {
    serde_json::from_slice(&vault.decrypt(value, &context(key))?).ok()
}

/// The response does not depend on this write: without it, a repeated request may wait in vain and is refused.
fn ignore(written: Result<(), StoreError>) {
    if let Err(error) = written {
        tracing::debug!(error = %chain(&error), "cannot write what a callback came to");
    }
}

#[cfg(test)]
mod tests;

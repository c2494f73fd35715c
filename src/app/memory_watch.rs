//! Watches how much memory the process uses: near its limit, new requests are refused, because the kernel would end the process
//! beyond it, with every session's WebSockets and open requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::gateway::concurrency::ConcurrencyLimit;
use crate::metrics::Metrics;

/// How often it is measured. At most this much time passes between an allocation and the first refusal.
const INTERVAL: Duration = Duration::from_millis(100);

/// The share of the control group's limit that may be used, in percent. The rest is for what requests in progress still need.
const USABLE_SHARE: u64 = 90;

/// How much memory may be used.
#[derive(Debug, Default)]
pub(super) struct MemoryLimit {
    /// In bytes; 0: no limit.
    bytes: AtomicU64,
}

impl MemoryLimit {
    pub(super) fn new(configured: u64) -> Arc<Self> {
        let limit = Arc::new(Self::default());
        limit.set(configured);
        limit
    }

    /// Sets `limits.memory`; 0 stands for a share of the control group's limit, if it has one.
    pub(super) fn set(&self, configured: u64) {
        let bytes = match configured {
            0 => control_group_limit().map_or(0, |limit| limit / 100 * USABLE_SHARE),
            configured => configured,
        };
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn is_exceeded_by(&self, used: u64) -> bool {
        let limit = self.bytes.load(Ordering::Relaxed);
        limit > 0 && used > limit
    }
}

/// Refuses requests while the process uses too much, for as long as the process runs.
pub(super) async fn run(limit: Arc<MemoryLimit>, concurrency: Arc<ConcurrencyLimit>, metrics: Arc<Metrics>) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_short = false;
    loop {
        tick.tick().await;
        let used = resident_bytes();
        let was_short = std::mem::replace(&mut is_short, used.is_some_and(|used| limit.is_exceeded_by(used)));
        concurrency.set_short_of_memory(is_short);
        let limit = limit.bytes.load(Ordering::Relaxed);
        metrics.memory_limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
        let (used, limit) = (used.unwrap_or_default() >> 20, limit >> 20);
        match (was_short, is_short) {
            (false, true) => {
                tracing::error!("{used} MiB of memory are in use, more than {limit}: refusing new requests")
            }
            (true, false) => {
                tracing::info!("{used} MiB of memory are in use, at most {limit} may be: accepting requests again")
            }
            _ => {}
        }
    }
}

/// The memory of this process that is not on disk or in the page cache of others.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The lowest memory limit of the control group (version 2) and those that it is in.
fn control_group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    limit_of(Path::new("/sys/fs/cgroup"), group)
}

fn limit_of(root: &Path, group: &str) -> Option<u64> {
    let folders = Path::new(group).ancestors().map(|group| root.join(group));
    let limit = |folder: PathBuf| std::fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok();
    folders.filter_map(limit).min()
}

#[cfg(test)]
mod tests;

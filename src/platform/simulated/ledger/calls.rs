//! Who called what how often.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::domain::clock::Timestamp;

/// The span that calls are limited in, and the one that a breach is punished for.
pub const MINUTE: Duration = Duration::from_secs(60);

/// The current minute of one path.
struct Window {
    ends_at: Timestamp,
    calls: u64,
    blocked: bool,
}

/// Counts and limits.
#[derive(Default)]
pub struct Calls {
    counts: BTreeMap<String, u64>,
    windows: HashMap<String, Window>,
}

impl Calls {
    /// Counts a call.
    pub fn count(&mut self, path: &str) {
        *self.counts.entry(path.to_owned()).or_default() += 1;
    }

    /// How often a path was called.
    pub fn of(&self, path: &str) -> u64 {
        self.counts.get(path).copied().unwrap_or(0)
    }

    /// All that was called.
    pub fn all(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Whether this call is one too many for its path. The first one too many blocks the path for a
    /// minute from then on, as the platform does.
    pub fn exceeds(&mut self, path: &str, limit: u64, now: Timestamp) -> bool {
        let fresh = || Window { ends_at: now.plus(MINUTE), calls: 0, blocked: false };
        let window = self.windows.entry(path.to_owned()).or_insert_with(fresh);
        if now >= window.ends_at {
            *window = fresh();
        }
        window.calls += 1;
        if !window.blocked && window.calls > limit {
            window.blocked = true;
            window.ends_at = now.plus(MINUTE);
        }
        window.blocked
    }

    /// Starts every path's minute again.
    pub fn forget_limits(&mut self) {
        self.windows.clear();
    }
}

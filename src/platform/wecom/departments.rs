//! A cache of department names: every sign-in needs one, and they rarely change.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::clock::Clock;

/// How long a name is cached, and so how long a renamed department keeps its old name.
const NAME_TTL: Duration = Duration::from_secs(600);

/// Largest number of cached names. A full cache is cleared.
const MAX_NAMES: usize = 4096;

/// Department names by ID.
pub struct DepartmentCache {
    clock: Clock,
    /// Each with the monotonic time at which it expires.
    names: Mutex<HashMap<i64, (String, Duration)>>,
}

impl DepartmentCache {
    /// An empty cache.
    pub fn new(clock: Clock) -> Self {
        Self { clock, names: Mutex::default() }
    }

    /// The name, unless it is missing or has expired.
    pub fn name(&self, id: i64) -> Option<String> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, expires_at) = names.get(&id)?;
        (self.clock.running() < *expires_at).then(|| name.clone())
    }

    /// Caches a name.
    pub fn insert(&self, id: i64, name: &str) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(id, (name.to_owned(), self.clock.running() + NAME_TTL));
    }
}

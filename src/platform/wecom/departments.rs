//! Names of departments, remembered for a while: every sign-in needs one, and they hardly change.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::clock::{Clock, Timestamp};

/// How long a name is believed: the longest that a renamed department goes unseen.
const BELIEVED: Duration = Duration::from_secs(600);

/// More departments than this are not remembered: the cache starts anew.
const MOST: usize = 4096;

/// The cache.
pub struct Departments {
    clock: Clock,
    names: Mutex<HashMap<i64, (String, Timestamp)>>,
}

impl Departments {
    /// Empty.
    pub fn new(clock: Clock) -> Self {
        Self { clock, names: Mutex::default() }
    }

    /// The name, while it is believed.
    pub fn name(&self, id: i64) -> Option<String> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, believed_until) = names.get(&id)?;
        (self.clock.now() < *believed_until).then(|| name.clone())
    }

    /// Remembers a name.
    pub fn remember(&self, id: i64, name: &str) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MOST {
            names.clear();
        }
        names.insert(id, (name.to_owned(), self.clock.now().plus(BELIEVED)));
    }
}

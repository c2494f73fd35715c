//! Names that many sessions have in common, which the cache holds once: corporations, roles and keys.

use std::hash::Hash;

use papaya::HashSet;

use crate::domain::employee::CorpId;
use crate::domain::role::RoleName;
use crate::domain::session::{KeyId, Session};

/// Most names of one kind. There are few of them; the bound is for a directory that makes one per employee.
const MAX_NAMES: usize = 4096;

/// The names that cached sessions share.
#[derive(Default)]
pub(super) struct SharedNames {
    corporations: HashSet<CorpId>,
    roles: HashSet<RoleName>,
    keys: HashSet<KeyId>,
}

impl SharedNames {
    /// Replaces the names of a session with equal ones that are held already.
    pub(super) fn share(&self, session: &mut Session) {
        share(&self.corporations, &mut session.corp_id);
        for role in session.roles.iter_mut().chain([&mut session.current_role]) {
            share(&self.roles, role);
        }
        if let Some(key_id) = &mut session.key_id {
            share(&self.keys, key_id);
        }
    }
}

fn share<T: Clone + Eq + Hash>(held: &HashSet<T>, name: &mut T) {
    let held = held.pin();
    if let Some(known) = held.get(name) {
        *name = known.clone();
    } else if held.len() < MAX_NAMES {
        held.insert(name.clone());
    }
}

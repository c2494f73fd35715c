//! How many WebSockets each employee has open under each rule, for `max_per_employee`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::domain::employee::{CorpId, EmployeeId};

/// The number of open WebSockets by employee and rule; at least one. The names are shared with sessions and rules.
#[derive(Debug, Default)]
pub(super) struct SocketCounts(HashMap<(CorpId, EmployeeId, Arc<str>), usize>);

impl SocketCounts {
    pub(super) fn count(&self, employee: &(CorpId, EmployeeId), rule: &Arc<str>) -> usize {
        self.0.get(&key(employee, rule)).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, employee: &(CorpId, EmployeeId), rule: &Arc<str>) {
        *self.0.entry(key(employee, rule)).or_default() += 1;
    }

    /// Takes back one `add` of the same employee and rule.
    pub(super) fn remove(&mut self, employee: &(CorpId, EmployeeId), rule: &Arc<str>) {
        if let Entry::Occupied(mut count) = self.0.entry(key(employee, rule)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

fn key((corp, employee): &(CorpId, EmployeeId), rule: &Arc<str>) -> (CorpId, EmployeeId, Arc<str>) {
    (corp.clone(), employee.clone(), rule.clone())
}

//! How many WebSockets each employee has open under each rule, for `max_per_employee`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::employee::{CorpId, EmployeeId};

/// The number of open WebSockets by employee and name of the rule. An employee uses few rules, so they are in a list.
#[derive(Debug, Default)]
pub(super) struct SocketCounts(HashMap<(CorpId, EmployeeId), Vec<(Arc<str>, usize)>>);

impl SocketCounts {
    pub(super) fn count(&self, employee: &(CorpId, EmployeeId), rule: &str) -> usize {
        let rules = self.0.get(employee).into_iter().flatten();
        rules.filter(|(name, _)| **name == *rule).map(|(_, count)| *count).sum()
    }

    pub(super) fn add(&mut self, employee: &(CorpId, EmployeeId), rule: &Arc<str>) {
        let rules = self.0.entry(employee.clone()).or_default();
        match rules.iter_mut().find(|(name, _)| name == rule) {
            Some((_, count)) => *count += 1,
            None => rules.push((rule.clone(), 1)),
        }
    }

    /// Takes back one `add` of the same employee and rule.
    pub(super) fn remove(&mut self, employee: &(CorpId, EmployeeId), rule: &str) {
        let Some(rules) = self.0.get_mut(employee) else { return };
        if let Some(index) = rules.iter().position(|(name, _)| **name == *rule) {
            rules[index].1 -= 1;
            if rules[index].1 == 0 {
                rules.swap_remove(index);
            }
        }
        if rules.is_empty() {
            self.0.remove(employee);
        }
    }
}

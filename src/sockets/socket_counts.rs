//! How many WebSockets each employee has open under each rule, for `max_per_employee`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::employee::{CorpId, EmployeeId};

/// The number of open WebSockets by employee and rule. An employee uses few rules, so they are in a list.
#[derive(Debug, Default)]
pub(super) struct SocketCounts(HashMap<(CorpId, EmployeeId), Vec<RuleSockets>>);

/// The open WebSockets of an employee under one rule; at least one.
#[derive(Debug)]
struct RuleSockets {
    rule: Arc<str>,
    count: usize,
}

impl SocketCounts {
    pub(super) fn count(&self, employee: &(CorpId, EmployeeId), rule: &str) -> usize {
        let rules = self.0.get(employee).into_iter().flatten();
        rules.filter(|open| *open.rule == *rule).map(|open| open.count).sum()
    }

    pub(super) fn add(&mut self, employee: &(CorpId, EmployeeId), rule: &Arc<str>) {
        let rules = self.0.entry(employee.clone()).or_default();
        match rules.iter_mut().find(|open| open.rule == *rule) {
            Some(open) => open.count += 1,
            None => rules.push(RuleSockets { rule: rule.clone(), count: 1 }),
        }
    }

    /// Takes back one `add` of the same employee and rule.
    pub(super) fn remove(&mut self, employee: &(CorpId, EmployeeId), rule: &str) {
        let Some(rules) = self.0.get_mut(employee) else { return };
        if let Some(index) = rules.iter().position(|open| *open.rule == *rule) {
            rules[index].count -= 1;
            if rules[index].count == 0 {
                rules.swap_remove(index);
            }
        }
        if rules.is_empty() {
            self.0.remove(employee);
        }
    }
}

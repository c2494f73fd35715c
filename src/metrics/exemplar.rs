//! Exemplars: for each bucket of a rule's durations the last sampled request in it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::SECONDS;

/// A sampled request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    /// Its trace.
    pub trace_id: u128,
    /// When it ended, in seconds since 1970.
    pub at: f64,
}

/// The exemplars of all rules. Only sampled requests take its lock.
#[derive(Debug, Default)]
pub(super) struct Exemplars {
    of_rules: Mutex<HashMap<Box<str>, RuleExemplars>>,
}

/// By bucket, the one without a bound last.
type RuleExemplars = [Option<(f64, Exemplar)>; SECONDS.len() + 1];

impl Exemplars {
    pub(super) fn observe(&self, rule: &str, seconds: f64, exemplar: Exemplar) {
        let bucket = SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(SECONDS.len());
        let mut of_rules = self.lock();
        if !of_rules.contains_key(rule) {
            of_rules.insert(rule.into(), [None; SECONDS.len() + 1]);
        }
        if let Some(of_rule) = of_rules.get_mut(rule) {
            of_rule[bucket] = Some((seconds, exemplar));
        }
    }

    /// The exemplars as OpenMetrics writes them, by the series of their bucket.
    pub(super) fn by_series(&self, name: &str) -> HashMap<String, String> {
        let mut by_series = HashMap::new();
        for (rule, of_rule) in &*self.lock() {
            let rule = rule.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            for (bucket, found) in of_rule.iter().enumerate() {
                let Some((seconds, Exemplar { trace_id, at })) = found else { continue };
                let bound = SECONDS.get(bucket).map_or("+Inf".to_owned(), f64::to_string);
                let series = format!("{name}_bucket{{rule=\"{rule}\",le=\"{bound}\"}}");
                by_series.insert(series, format!("# {{trace_id=\"{trace_id:032x}\"}} {seconds} {at:.3}"));
            }
        }
        by_series
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, RuleExemplars>> {
        self.of_rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

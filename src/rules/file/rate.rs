//! `rate = [{ by = "employee", limit = 120, per = "1m" }]`

use serde::Deserialize;

use super::Loader;
use crate::config::HumanDuration;
use crate::domain::rate::Window;
use crate::rules::Mode;
use crate::rules::rate::{Rate, RateBy, RateScope};

/// A rate as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateTable {
    by: String,
    limit: u32,
    per: HumanDuration,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    shared: Option<bool>,
}

/// The most rates of one rule: each is charged for every request.
const MOST: usize = 8;

impl Loader<'_> {
    /// Compiles the rates of the rule or endpoint called `of`.
    pub(super) fn rates(&mut self, file: &str, line: usize, of: &str, written: &[RateTable]) -> Vec<Rate> {
        if written.len() > MOST {
            self.fault(file, line, format!("rate: {} rates; at most {MOST} are allowed", written.len()));
        }
        let mut rates = Vec::with_capacity(written.len());
        for rate in written {
            let by = RateBy::parse(&rate.by);
            if by.is_none() {
                self.unknown(file, line, "rate.by", &rate.by, &RateBy::WORDS);
            }
            if rate.limit == 0 || rate.per.get().is_zero() {
                self.fault(file, line, "rate: `limit` and `per` must be greater than 0");
            }
            let mode = self.mode(file, line, "rate.mode", rate.mode.as_deref());
            let window = Window { limit: rate.limit, per: rate.per.get() };
            if let Some(by) = by {
                let counted = match rate.shared {
                    None => by.usual_scope(),
                    Some(true) => RateScope::Shared,
                    Some(false) => RateScope::Local,
                };
                let nth = rates.iter().filter(|other: &&Rate| other.by == by).count();
                rates.push(Rate::new(of, by, nth, window, mode, counted));
            }
        }
        rates
    }

    /// Reads `enforce` or `shadow`.
    pub(super) fn mode(&mut self, file: &str, line: usize, place: &str, written: Option<&str>) -> Mode {
        match written {
            None | Some("enforce") => Mode::Enforce,
            Some("shadow") => Mode::Shadow,
            Some(other) => {
                self.unknown(file, line, place, other, &["enforce", "shadow"]);
                Mode::Enforce
            }
        }
    }
}

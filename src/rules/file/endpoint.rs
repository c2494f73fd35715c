//! `[[endpoint]]`: the rates of our own endpoints.

use serde::Deserialize;

use super::rate::WrittenRate;
use super::{Load, Table};
use crate::endpoints::TABLE;
use crate::rules::rate::Rate;

/// An `[[endpoint]]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    path: String,
    rate: Vec<WrittenRate>,
}

impl Load<'_> {
    /// Rates that a file gives.
    pub(super) fn endpoint(&mut self, table: Table<'_>, rates: &mut Vec<Vec<Rate>>) {
        let file = table.file;
        let found = self.read::<Written>(table);
        let (path, line) = (found.value.path.as_str(), found.at("path"));
        if !TABLE.iter().any(|row| row.path == path) {
            let mut known: Vec<&str> = TABLE.iter().map(|row| row.path).collect();
            known.dedup();
            let why = format!("path: `{path}` is none of the gateway's own: {}", known.join(", "));
            return self.fault(file, line, why);
        }
        if let Some((other, there)) = self.endpoints.insert(path.to_owned(), (file.to_owned(), line)) {
            return self.fault(file, line, format!("path: `{path}` has its rates at {other}:{there} already"));
        }
        if !found.lines.contains_key("rate") {
            return self.fault(file, line, "rate: missing; `rate = []` sets no limit at all");
        }
        let compiled = self.rates(file, found.at("rate"), path, &found.value.rate);
        put(path, &compiled, rates);
    }

    /// Rates that we ship, for an endpoint that no file names.
    pub(super) fn shipped_endpoint(&mut self, table: Table<'_>, rates: &mut Vec<Vec<Rate>>) {
        let file = table.file;
        let found = self.read::<Written>(table);
        if !self.endpoints.contains_key(&found.value.path) {
            let compiled = self.rates(file, found.at("rate"), &found.value.path, &found.value.rate);
            put(&found.value.path, &compiled, rates);
        }
    }
}

fn put(path: &str, compiled: &[Rate], rates: &mut Vec<Vec<Rate>>) {
    for row in TABLE.iter().filter(|row| row.path == path) {
        let place = row.endpoint as usize;
        if rates.len() <= place {
            rates.resize_with(place + 1, Vec::new);
        }
        rates[place] = compiled.to_vec();
    }
}

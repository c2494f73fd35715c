//! `[[endpoint]]`: the rates of the gateway's own endpoints.

use std::sync::Arc;

use serde::Deserialize;

use super::rate::RateTable;
use super::{Loader, Table};
use crate::endpoints::TABLE;
use crate::rules::rate::Rate;

/// An `[[endpoint]]` as the file has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EndpointTable {
    path: String,
    rate: Vec<RateTable>,
}

impl Loader<'_> {
    /// Compiles the rates of an endpoint.
    pub(super) fn endpoint(&mut self, table: Table<'_>, rates: &mut Vec<Arc<[Rate]>>) {
        let file = table.file;
        let found = self.read::<EndpointTable>(table);
        let (path, line) = (found.value.path.as_str(), found.at("path"));
        if !TABLE.iter().any(|row| row.path == path) {
            let mut known: Vec<&str> = TABLE.iter().map(|row| row.path).collect();
            known.dedup();
            let why = format!("path: `{path}` is not an endpoint of the gateway; allowed: {}", known.join(", "));
            return self.fault(file, line, why);
        }
        if let Some((other, there)) = self.endpoints.insert(path.to_owned(), (file.to_owned(), line)) {
            return self.fault(file, line, format!("path: `{path}` already has its rates at {other}:{there}"));
        }
        if !found.lines.contains_key("rate") {
            return self.fault(file, line, "rate: missing; write `rate = []` for no limit");
        }
        let compiled = self.rates(file, found.at("rate"), path, &found.value.rate);
        put(path, compiled, rates);
    }

    /// Compiles the shipped rates of an endpoint that no file mentions.
    pub(super) fn shipped_endpoint(&mut self, table: Table<'_>, rates: &mut Vec<Arc<[Rate]>>) {
        let file = table.file;
        let found = self.read::<EndpointTable>(table);
        if !self.endpoints.contains_key(&found.value.path) {
            let compiled = self.rates(file, found.at("rate"), &found.value.path, &found.value.rate);
            put(&found.value.path, compiled, rates);
        }
    }
}

fn put(path: &str, compiled: Vec<Rate>, rates: &mut Vec<Arc<[Rate]>>) {
    let compiled: Arc<[Rate]> = compiled.into();
    for row in TABLE.iter().filter(|row| row.path == path) {
        let place = row.endpoint as usize;
        if rates.len() <= place {
            rates.resize_with(place + 1, Arc::default);
        }
        rates[place] = compiled.clone();
    }
}

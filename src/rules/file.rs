//! Reads rule files: from TOML to [`RuleSet`], with the line of every fault. `file/` has one reader per kind of table.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::case::CaseTable;
use super::matrix::Matrix;
use super::routes::Routes;
use super::tree::Segment;
use super::{Case, Rate, RuleSet, SHIPPED_RATES};
use crate::config::{NamedUpstream, line_of};
use crate::domain::secret::Digest;
use crate::metrics::Metrics;

mod endpoint;

mod matrix;

mod rate;

mod rule;

/// A fault of a rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFault {
    /// The file's path.
    pub file: String,
    /// The line; 0 for a fault of the whole file.
    pub line: usize,
    /// The message.
    pub why: String,
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.why),
            line => write!(f, "{}:{line}: {}", self.file, self.why),
        }
    }
}

/// Loads every `*.toml` of a folder, in the order of their names.
pub fn load_dir(dir: &Path, upstreams: &[NamedUpstream<'_>], metrics: &Metrics) -> Result<RuleSet, Vec<RuleFault>> {
    let whole = |why: String| vec![RuleFault { file: dir.display().to_string(), line: 0, why }];
    let entries = std::fs::read_dir(dir).map_err(|error| whole(format!("cannot be read: {error}")))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| whole(format!("cannot be read: {error}")))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    let mut texts = Vec::with_capacity(files.len());
    for path in files {
        let text = std::fs::read_to_string(&path)
            .map_err(|error| vec![RuleFault { file: path.display().to_string(), line: 0, why: error.to_string() }])?;
        texts.push((path.display().to_string(), text));
    }
    if texts.is_empty() {
        return Err(whole("has no *.toml file".to_owned()));
    }
    load_texts(&texts, upstreams, metrics)
}

/// Compiles rules from texts; their names appear in faults. `explain::check_cases` runs the cases.
pub fn load_texts(
    texts: &[(String, String)],
    upstreams: &[NamedUpstream<'_>],
    metrics: &Metrics,
) -> Result<RuleSet, Vec<RuleFault>> {
    let mut loader = Loader {
        upstreams,
        metrics,
        faults: Vec::new(),
        matrix: Matrix::default(),
        names: HashMap::new(),
        paths: HashMap::new(),
        endpoints: HashMap::new(),
    };
    let mut tables = Tables::default();
    for (file, text) in texts {
        loader.split(file, text, &mut tables);
    }
    // Rules refer to the matrix, so it comes first.
    for table in tables.matrix {
        loader.matrix(table);
    }
    let mut rules = RuleSet {
        routes: Routes::default(),
        all: Vec::new(),
        cases: Vec::new(),
        own_rates: Vec::new(),
        digest: Digest::of(&texts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>()),
    };
    for table in tables.rules {
        if let Some(rule) = loader.rule(table) {
            let rule = Arc::new(rule);
            rules.routes.insert(rule.clone());
            rules.all.push(rule);
        }
    }
    for table in tables.endpoints {
        loader.endpoint(table, &mut rules.own_rates);
    }
    loader.shipped_rates(&mut rules.own_rates);
    // A case of a role that a faulty matrix does not define would be a misleading fault.
    if loader.faults.is_empty() {
        for table in tables.cases {
            rules.cases.extend(loader.case(table));
        }
    }
    loader.faults.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    if loader.faults.is_empty() { Ok(rules) } else { Err(loader.faults) }
}

/// A table of a file.
struct Table<'a> {
    file: &'a str,
    text: &'a str,
    line: usize,
    table: DeTable<'a>,
}

/// The tables of all files, by kind.
#[derive(Default)]
struct Tables<'a> {
    rules: Vec<Table<'a>>,
    cases: Vec<Table<'a>>,
    endpoints: Vec<Table<'a>>,
    matrix: Vec<Table<'a>>,
}

/// The values of a table, and the line of each key.
struct ReadTable<T> {
    value: T,
    lines: HashMap<String, usize>,
    line: usize,
}

impl<T> ReadTable<T> {
    /// The line of a key, or of the table if it has no such key.
    fn at(&self, key: &str) -> usize {
        self.lines.get(key).copied().unwrap_or(self.line)
    }
}

struct Loader<'a> {
    upstreams: &'a [NamedUpstream<'a>],
    metrics: &'a Metrics,
    faults: Vec<RuleFault>,
    matrix: Matrix,
    /// File and line of each rule name.
    names: HashMap<String, (String, usize)>,
    /// The rules of each path, by its pattern with folded case.
    paths: HashMap<Vec<Segment>, Vec<rule::ClaimedPath>>,
    /// File and line of each endpoint's rates.
    endpoints: HashMap<String, (String, usize)>,
}

impl<'a> Loader<'a> {
    /// Splits a file into its tables.
    fn split<'t>(&mut self, file: &'t str, text: &'t str, tables: &mut Tables<'t>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            self.fault(file, line, error.message());
        }
        if !errors.is_empty() {
            return;
        }
        for (key, value) in root.into_inner() {
            let line = line_of(text, key.span().start);
            let list = match key.get_ref().as_ref() {
                "rule" => &mut tables.rules,
                "case" => &mut tables.cases,
                "endpoint" => &mut tables.endpoints,
                "matrix" => match value.into_inner() {
                    DeValue::Table(table) => {
                        tables.matrix.push(Table { file, text, line, table });
                        continue;
                    }
                    _ => {
                        self.fault(file, line, "write `[matrix.<role>]`");
                        continue;
                    }
                },
                other => {
                    let why = format!("unknown key `{other}`; allowed: rule, case, endpoint, matrix");
                    self.fault(file, line, why);
                    continue;
                }
            };
            let kind = key.get_ref();
            let DeValue::Array(entries) = value.into_inner() else {
                self.fault(file, line, format!("write `[[{kind}]]`"));
                continue;
            };
            for entry in entries {
                let line = line_of(text, entry.span().start);
                match entry.into_inner() {
                    DeValue::Table(table) => list.push(Table { file, text, line, table }),
                    _ => self.fault(file, line, format!("write `[[{kind}]]`")),
                }
            }
        }
    }

    /// Reads a table key by key, so that the faults of all keys are reported.
    fn read<T: DeserializeOwned + Default>(&mut self, table: Table<'_>) -> ReadTable<T> {
        let mut lines = HashMap::new();
        let mut valid = DeTable::new();
        for (key, value) in table.table {
            let line = line_of(table.text, key.span().start);
            lines.insert(key.get_ref().to_string(), line);
            let mut alone = DeTable::new();
            alone.insert(key.clone(), value.clone());
            match T::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, alone))) {
                Ok(_) => {
                    valid.insert(key, value);
                }
                Err(error) => {
                    // In a value of several lines the fault has a line of its own.
                    let line =
                        error.span().filter(|span| span.start > 0).map_or(line, |span| line_of(table.text, span.start));
                    self.fault(table.file, line, format!("{}: {}", key.get_ref(), error.message()));
                }
            }
        }
        let value = T::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, valid))).unwrap_or_default();
        ReadTable { value, lines, line: table.line }
    }

    fn case(&mut self, table: Table<'_>) -> Option<Case> {
        let (file, before) = (table.file, self.faults.len());
        let found = self.read::<CaseTable>(table);
        if self.faults.len() > before {
            return None;
        }
        let compiled = found.value.compile(file, found.line, &self.matrix);
        compiled.map_err(|why| self.fault(file, found.line, why)).ok()
    }

    /// Adds the shipped rates of every endpoint that no file mentions, so that sign-in is never unlimited by oversight.
    fn shipped_rates(&mut self, rates: &mut Vec<Arc<[Rate]>>) {
        let (file, text) = SHIPPED_RATES;
        let mut tables = Tables::default();
        self.split(file, text, &mut tables);
        for table in tables.endpoints {
            self.shipped_endpoint(table, rates);
        }
    }

    fn fault(&mut self, file: &str, line: usize, why: impl Into<String>) {
        self.faults.push(RuleFault { file: file.to_owned(), line, why: why.into() });
    }
}

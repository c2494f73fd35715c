//! Rule files: from TOML to [`RuleSet`], with every fault at its line. `file/` has a reader for each kind of table.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::case::Case;
use super::matrix::Matrix;
use super::tree::{Segment, Tree};
use super::{RuleSet, SHIPPED_RATES};
use crate::config::line_of;
use crate::metrics::Metrics;

mod endpoint;

mod matrix;

mod rate;

mod rule;

/// One thing that is wrong with a rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFault {
    /// The file.
    pub file: String,
    /// The line in it; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong.
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

/// Reads every `*.toml` of a folder, in the order of their names.
pub fn load_dir(dir: &Path, upstreams: &[&str], metrics: &Metrics) -> Result<RuleSet, Vec<RuleFault>> {
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
        return Err(whole("holds no *.toml file".to_owned()));
    }
    load_texts(&texts, upstreams, metrics)
}

/// Compiles rules out of texts, and runs their cases. The texts' names are for faults.
pub fn load_texts(
    texts: &[(String, String)],
    upstreams: &[&str],
    metrics: &Metrics,
) -> Result<RuleSet, Vec<RuleFault>> {
    let mut load = Load {
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
        load.sort(file, text, &mut tables);
    }
    // Rules name what the matrix grants, and cases need all rules.
    for table in tables.matrix {
        load.matrix(table);
    }
    let mut rules = RuleSet { tree: Tree::default(), count: 0, cases: 0, own_rates: Vec::new() };
    for table in tables.rules {
        if let Some((pattern, rule)) = load.rule(table) {
            rules.tree.insert(&pattern, rule.into());
            rules.count += 1;
        }
    }
    for table in tables.endpoints {
        load.endpoint(table, &mut rules.own_rates);
    }
    load.shipped_rates(&mut rules.own_rates);
    // What cases say about rules with faults would only confuse.
    if load.faults.is_empty() {
        for table in tables.cases {
            rules.cases += 1;
            load.case(table, &rules);
        }
    }
    load.faults.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    if load.faults.is_empty() { Ok(rules) } else { Err(load.faults) }
}

/// A table of a file, with where it stands.
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

/// What is found of a table: its values, and where each key stands.
struct Found<T> {
    value: T,
    lines: HashMap<String, usize>,
    line: usize,
}

impl<T> Found<T> {
    /// The line of a key, or of the table when it is not there.
    fn at(&self, key: &str) -> usize {
        self.lines.get(key).copied().unwrap_or(self.line)
    }
}

struct Load<'a> {
    upstreams: &'a [&'a str],
    metrics: &'a Metrics,
    faults: Vec<RuleFault>,
    matrix: Matrix,
    /// Where each name was first used.
    names: HashMap<String, (String, usize)>,
    /// Which rule has a path and method.
    paths: HashMap<(Vec<Segment>, String), String>,
    /// Where each endpoint's rates were given.
    endpoints: HashMap<String, (String, usize)>,
}

impl<'a> Load<'a> {
    /// Takes a file apart.
    fn sort<'t>(&mut self, file: &'t str, text: &'t str, tables: &mut Tables<'t>) {
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

    /// Reads a table key by key, so that every key's fault is told and not only the first.
    fn read<T: DeserializeOwned + Default>(&mut self, table: Table<'_>) -> Found<T> {
        let mut lines = HashMap::new();
        let mut sound = DeTable::new();
        for (key, value) in table.table {
            let line = line_of(table.text, key.span().start);
            lines.insert(key.get_ref().to_string(), line);
            let mut alone = DeTable::new();
            alone.insert(key.clone(), value.clone());
            match T::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, alone))) {
                Ok(_) => {
                    sound.insert(key, value);
                }
                Err(error) => {
                    // Within a list of many lines the fault's own line is meant.
                    let line =
                        error.span().filter(|span| span.start > 0).map_or(line, |span| line_of(table.text, span.start));
                    self.fault(table.file, line, format!("{}: {}", key.get_ref(), error.message()));
                }
            }
        }
        let value = T::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, sound))).unwrap_or_default();
        Found { value, lines, line: table.line }
    }

    fn case(&mut self, table: Table<'_>, rules: &RuleSet) {
        let (file, before) = (table.file, self.faults.len());
        let found = self.read::<Case>(table);
        if self.faults.len() > before {
            return;
        }
        if let Some(why) = found.value.fault(rules, &self.matrix) {
            self.fault(file, found.line, why);
        }
    }

    /// The rates that we ship hold for every endpoint that no file names: sign-in is never unlimited by oversight.
    fn shipped_rates(&mut self, rates: &mut Vec<Vec<super::Rate>>) {
        let (file, text) = SHIPPED_RATES;
        let mut tables = Tables::default();
        self.sort(file, text, &mut tables);
        for table in tables.endpoints {
            self.shipped_endpoint(table, rates);
        }
    }

    fn fault(&mut self, file: &str, line: usize, why: impl Into<String>) {
        self.faults.push(RuleFault { file: file.to_owned(), line, why: why.into() });
    }
}

//! Rule files: from TOML to [`RuleSet`], with every fault at its line.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::tree::{Segment, Tree};
use super::{Access, ForwardToken, METHODS, Rule, RuleSet, UpstreamRef, pattern};
use crate::config::line_of;
use crate::domain::role::RoleName;
use crate::metrics::Metrics;

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

/// A `[[rule]]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    name: String,
    path: String,
    methods: Vec<String>,
    upstream: String,
    public: bool,
    signed_in: bool,
    roles: Vec<String>,
    forward_token: bool,
}

/// Reads every `*.toml` of a folder, in the order of their names.
pub fn load_dir(dir: &Path, upstreams: &[&str], metrics: &Metrics) -> Result<RuleSet, Vec<RuleFault>> {
    let whole = |why: String| vec![RuleFault { file: dir.display().to_string(), line: 0, why }];
    let entries = std::fs::read_dir(dir).map_err(|error| whole(format!("cannot be read: {error}")))?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
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

/// Compiles rules out of texts; their names are for faults.
pub fn load_texts(
    texts: &[(String, String)],
    upstreams: &[&str],
    metrics: &Metrics,
) -> Result<RuleSet, Vec<RuleFault>> {
    let mut load = Load { upstreams, faults: Vec::new(), names: HashMap::new(), paths: HashMap::new() };
    let mut tree = Tree::default();
    let mut count = 0;
    for (file, text) in texts {
        for (pattern, rule) in load.file(file, text, metrics) {
            tree.insert(&pattern, rule);
            count += 1;
        }
    }
    if load.faults.is_empty() { Ok(RuleSet { tree, count }) } else { Err(load.faults) }
}

struct Load<'a> {
    upstreams: &'a [&'a str],
    faults: Vec<RuleFault>,
    /// Where each name was first used.
    names: HashMap<String, (String, usize)>,
    /// Which rule has a path and method.
    paths: HashMap<(Vec<Segment>, String), String>,
}

impl Load<'_> {
    fn file(&mut self, file: &str, text: &str, metrics: &Metrics) -> Vec<(Vec<Segment>, Arc<Rule>)> {
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            self.fault(file, line, error.message());
        }
        if !errors.is_empty() {
            return Vec::new();
        }
        let mut rules = Vec::new();
        for (key, value) in root.into_inner() {
            let line = line_of(text, key.span().start);
            match (key.get_ref().as_ref(), value.into_inner()) {
                ("rule", DeValue::Array(tables)) => {
                    for table in tables {
                        rules.extend(self.rule(file, text, table, metrics));
                    }
                }
                ("rule", _) => self.fault(file, line, "write `[[rule]]`"),
                (other, _) => self.fault(file, line, format!("unknown key `{other}`; allowed: rule")),
            }
        }
        rules
    }

    fn rule(
        &mut self,
        file: &str,
        text: &str,
        value: Spanned<DeValue<'_>>,
        metrics: &Metrics,
    ) -> Option<(Vec<Segment>, Arc<Rule>)> {
        let line = line_of(text, value.span().start);
        let DeValue::Table(table) = value.into_inner() else {
            self.fault(file, line, "write `[[rule]]`");
            return None;
        };
        let faults_before = self.faults.len();
        let mut lines = HashMap::new();
        let mut sound = DeTable::new();
        for (key, value) in table {
            let place = line_of(text, key.span().start);
            lines.insert(key.get_ref().to_string(), place);
            let mut alone = DeTable::new();
            alone.insert(key.clone(), value.clone());
            match Written::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, alone))) {
                Ok(_) => {
                    sound.insert(key, value);
                }
                Err(error) => self.fault(file, place, format!("{}: {}", key.get_ref(), error.message())),
            }
        }
        let written = Written::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, sound))).unwrap_or_default();
        let at = |key: &str| lines.get(key).copied().unwrap_or(line);

        if written.name.is_empty() || written.name.len() > 100 {
            self.fault(file, at("name"), "name: every rule has one, of at most 100 bytes");
        } else if let Some((other, there)) = self.names.get(&written.name).cloned() {
            self.fault(file, at("name"), format!("name: `{}` is already used at {other}:{there}", written.name));
        } else {
            self.names.insert(written.name.clone(), (file.to_owned(), at("name")));
        }
        let path = pattern::compile(&written.path)
            .map_err(|why| self.fault(file, at("path"), format!("path: {why}")))
            .unwrap_or_default();
        for method in &written.methods {
            if !METHODS.contains(&method.as_str()) {
                let why = format!("methods: `{method}` is not one of {}", METHODS.join(", "));
                self.fault(file, at("methods"), why);
            }
        }
        let upstream = self.upstreams.iter().position(|name| *name == written.upstream);
        if upstream.is_none() {
            let known =
                if self.upstreams.is_empty() { "none is configured".to_owned() } else { self.upstreams.join(", ") };
            let why = format!("upstream: there is no `{}`; configured: {known}", written.upstream);
            self.fault(file, at("upstream"), why);
        }
        let access = self.access(file, &written, &at);
        let all =
            if written.methods.is_empty() { METHODS.map(str::to_owned).to_vec() } else { written.methods.clone() };
        for method in all {
            if let Some(other) = self.paths.insert((path.clone(), method.clone()), written.name.clone()) {
                let why = format!("path: {method} {} is already taken by rule `{other}`", written.path);
                self.fault(file, at("path"), why);
                break;
            }
        }
        if self.faults.len() > faults_before {
            return None;
        }
        let (access, index) = (access?, upstream?);
        let rule = Rule {
            metrics: metrics.of_rule(&written.name),
            name: written.name.into(),
            methods: written.methods,
            upstream: UpstreamRef { name: written.upstream.into(), index },
            access,
            forward_token: if written.forward_token { ForwardToken::AsSent } else { ForwardToken::Never },
        };
        Some((path, Arc::new(rule)))
    }

    fn access(&mut self, file: &str, written: &Written, at: &impl Fn(&str) -> usize) -> Option<Access> {
        for role in &written.roles {
            if !RoleName::is_well_formed(role) {
                self.fault(file, at("roles"), format!("roles: `{role}` is not a role's name"));
            }
        }
        match (written.public, written.signed_in, written.roles.is_empty()) {
            (true, false, true) => Some(Access::Public),
            (false, true, true) => Some(Access::SignedIn),
            (false, _, false) => {
                Some(Access::Roles(written.roles.iter().map(|role| RoleName::new(role.as_str())).collect()))
            }
            (true, true, _) | (true, false, false) => {
                self.fault(file, at("public"), "public: a public rule has no `signed_in` and no `roles`");
                None
            }
            (false, false, true) => {
                self.fault(
                    file,
                    at("name"),
                    "says nothing about access: give `public = true`, `signed_in = true` or `roles`",
                );
                None
            }
        }
    }

    fn fault(&mut self, file: &str, line: usize, why: impl Into<String>) {
        self.faults.push(RuleFault { file: file.to_owned(), line, why: why.into() });
    }
}

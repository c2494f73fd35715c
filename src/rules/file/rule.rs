//! `[[rule]]`

use std::path::Path;

use http::HeaderValue;
use serde::Deserialize;

use super::rate::RateTable;
use super::{Loader, ReadTable, Table};
use crate::config::PathCase;
use crate::domain::role::RoleName;
use crate::rules::condition::Condition;
use crate::rules::matrix::{MatrixAccess, MatrixOperation, Resource};
use crate::rules::tree::Segment;
use crate::rules::{Access, AssertionKind, CorsHandling, ForwardToken, METHODS, Mode, Rule, UpstreamRef, pattern};

/// A `[[rule]]` as the file has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RuleTable {
    name: String,
    path: String,
    methods: Vec<String>,
    upstream: String,
    public: bool,
    signed_in: bool,
    access: Option<String>,
    roles: Vec<String>,
    networks: Vec<String>,
    when: Option<String>,
    step_up: bool,
    rate: Vec<RateTable>,
    mode: Option<String>,
    shadow_anonymous: bool,
    websocket: SocketsTable,
    forward_token: bool,
    assertion: Option<String>,
    cors: Option<String>,
}

/// `websocket = { max_per_employee = 5 }`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SocketsTable {
    max_per_employee: Option<usize>,
}

impl Loader<'_> {
    /// Compiles a rule; `None` if it has a fault.
    pub(super) fn rule(&mut self, table: Table<'_>) -> Option<Rule> {
        let (file, before) = (table.file, self.faults.len());
        let found = self.read::<RuleTable>(table);
        self.name(file, &found);
        let written = &found.value;
        let pattern = pattern::compile(&written.path)
            .map_err(|why| self.fault(file, found.at("path"), format!("path: {why}")))
            .unwrap_or_default();
        for method in written.methods.iter().filter(|method| !METHODS.contains(&method.as_str())) {
            self.unknown(file, found.at("methods"), "methods", method, &METHODS);
        }
        let upstream = self.upstream(file, &found);
        let access = self.access(file, &found);
        let roles = self.roles(file, &found);
        let networks = self.networks(file, &found);
        let path_case = upstream.as_ref().map(|upstream| upstream.path_case).unwrap_or_default();
        let when = written.when.as_deref().map(|text| Condition::compile(text, path_case)).transpose();
        let when = when.map_err(|why| self.fault(file, found.at("when"), format!("when: {why}"))).ok().flatten();
        let rates = self.rates(file, found.at("rate"), &written.name, &written.rate);
        let mode = self.mode(file, found.at("mode"), "mode", written.mode.as_deref());
        self.check_shadow_anonymous(file, &found, mode);
        let assertion = self.assertion(file, &found);
        let cors = self.cors(file, &found);
        if written.websocket.max_per_employee == Some(0) {
            self.fault(file, found.at("websocket"), "websocket.max_per_employee: must be greater than 0");
        }
        if let Some(upstream) = upstream.as_ref().filter(|_| !pattern.is_empty()) {
            self.check_unique(file, &found, &pattern, upstream.path_case);
        }
        for (key, empty) in [
            ("methods", written.methods.is_empty()),
            ("roles", written.roles.is_empty()),
            ("networks", written.networks.is_empty()),
        ] {
            if empty && found.lines.contains_key(key) {
                self.fault(file, found.at(key), format!("{key}: an empty list; leave the key out to allow all"));
            }
        }
        if self.faults.len() > before {
            return None;
        }
        let rule = Rule {
            metrics: self.metrics.of_rule(&written.name),
            name: written.name.as_str().into(),
            path: written.path.as_str().into(),
            pattern: pattern.into(),
            place: place(file, found.line),
            methods: written.methods.clone(),
            upstream: upstream?,
            access: access?,
            roles,
            networks,
            when,
            step_up: written.step_up,
            rates,
            mode,
            shadow_anonymous: written.shadow_anonymous,
            most_sockets: written.websocket.max_per_employee,
            forward_token: if written.forward_token { ForwardToken::AsSent } else { ForwardToken::Never },
            assertion,
            cors,
        };
        Some(rule)
    }

    fn name(&mut self, file: &str, found: &ReadTable<RuleTable>) {
        let (name, line) = (&found.value.name, found.at("name"));
        if name.is_empty() || name.len() > 100 {
            self.fault(file, line, "name: required, at most 100 bytes");
        } else if let Some((other, there)) = self.names.get(name).cloned() {
            self.fault(file, line, format!("name: `{name}` is already used at {other}:{there}"));
        } else {
            self.names.insert(name.clone(), (file.to_owned(), line));
        }
    }

    fn upstream(&mut self, file: &str, found: &ReadTable<RuleTable>) -> Option<UpstreamRef> {
        let wanted = &found.value.upstream;
        let configured = self.upstreams.iter().find(|upstream| upstream.name == wanted);
        if configured.is_none() {
            let names: Vec<&str> = self.upstreams.iter().map(|upstream| upstream.name).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let why = format!("upstream: there is no `{wanted}`; configured: {known}");
            self.fault(file, found.at("upstream"), why);
        }
        let upstream = configured?;
        Some(UpstreamRef {
            name: upstream.name.into(),
            index: upstream.index,
            path_case: upstream.path_case,
            protocol: upstream.protocol,
            // A host has only letters, digits and a few signs, all of which are allowed in a header.
            host: upstream.host.and_then(|host| HeaderValue::from_str(host).ok()),
        })
    }

    /// Reads who may use the rule. `access` and `roles` imply `signed_in`.
    fn access(&mut self, file: &str, found: &ReadTable<RuleTable>) -> Option<Access> {
        let written = &found.value;
        if written.public {
            let contradicts = written.signed_in
                || written.access.is_some()
                || !written.roles.is_empty()
                || written.step_up
                || written.websocket.max_per_employee.is_some();
            if contradicts {
                let why = "public: a public rule identifies no caller; it cannot have `signed_in`, `access`, `roles`, \
                           `step_up` or `websocket.max_per_employee`";
                self.fault(file, found.at("public"), why);
                return None;
            }
            return Some(Access::Public);
        }
        match &written.access {
            Some(access) => self.granted(file, found.at("access"), access),
            None if written.signed_in || !written.roles.is_empty() => Some(Access::SignedIn),
            None => {
                let why = "access is missing: give `public = true`, `signed_in = true`, `access` or `roles`";
                self.fault(file, found.at("name"), why);
                None
            }
        }
    }

    /// Reads `resource:operation`.
    fn granted(&mut self, file: &str, line: usize, access: &str) -> Option<Access> {
        let Some((resource, operation)) = access.split_once(':') else {
            self.fault(file, line, format!("access: `{access}` is not of the form `resource:operation`"));
            return None;
        };
        let known = (Resource::parse(resource), MatrixOperation::parse(operation));
        if known.0.is_none() {
            self.unknown(file, line, "access", resource, Resource::WORDS);
        }
        if known.1.is_none() {
            self.unknown(file, line, "access", operation, MatrixOperation::WORDS);
        }
        let (Some(resource), Some(operation)) = known else { return None };
        let row = self.matrix.row(resource, operation);
        if row.is_empty() {
            self.fault(file, line, format!("access: the matrix grants {access} to no role"));
            return None;
        }
        Some(Access::Matrix(MatrixAccess { resource, operation, row }))
    }

    fn roles(&mut self, file: &str, found: &ReadTable<RuleTable>) -> Vec<RoleName> {
        for role in &found.value.roles {
            if !self.matrix.knows(role) {
                let why =
                    format!("roles: `{role}` is not one of {}; `[matrix.{role}]` declares it", self.matrix.known());
                self.fault(file, found.at("roles"), why);
            }
        }
        found.value.roles.iter().map(|role| RoleName::new(role.as_str())).collect()
    }

    fn networks(&mut self, file: &str, found: &ReadTable<RuleTable>) -> Vec<ipnet::IpNet> {
        let mut networks = Vec::with_capacity(found.value.networks.len());
        for text in &found.value.networks {
            let alone = || text.parse::<std::net::IpAddr>().ok().map(ipnet::IpNet::from);
            match text.parse::<ipnet::IpNet>().ok().or_else(alone) {
                Some(network) => networks.push(network),
                None => {
                    let why = format!("networks: `{text}` is not a network; write `10.0.0.0/8` or `2001:db8::/32`");
                    self.fault(file, found.at("networks"), why);
                }
            }
        }
        networks
    }

    /// Reports `shadow_anonymous` where it has no effect.
    fn check_shadow_anonymous(&mut self, file: &str, found: &ReadTable<RuleTable>, mode: Mode) {
        let why = match found.value {
            RuleTable { shadow_anonymous: false, .. } => return,
            RuleTable { public: true, .. } => "a public rule lets everyone pass; leave the key out",
            _ if mode == Mode::Enforce => "only for a rule with `mode = \"shadow\"`",
            _ => return,
        };
        self.fault(file, found.at("shadow_anonymous"), format!("shadow_anonymous: {why}"));
    }

    fn assertion(&mut self, file: &str, found: &ReadTable<RuleTable>) -> AssertionKind {
        let Some(word) = found.value.assertion.as_deref() else { return AssertionKind::default() };
        AssertionKind::parse(word).unwrap_or_else(|| {
            self.unknown(file, found.at("assertion"), "assertion", word, &AssertionKind::WORDS);
            AssertionKind::default()
        })
    }

    fn cors(&mut self, file: &str, found: &ReadTable<RuleTable>) -> CorsHandling {
        let Some(word) = found.value.cors.as_deref() else { return CorsHandling::default() };
        CorsHandling::parse(word).unwrap_or_else(|| {
            self.unknown(file, found.at("cors"), "cors", word, &CorsHandling::WORDS);
            CorsHandling::default()
        })
    }

    /// Reports a second rule for the same path and method. Patterns that differ in case are the same for upstreams that
    /// ignore it.
    fn check_unique(&mut self, file: &str, found: &ReadTable<RuleTable>, pattern: &[Segment], path_case: PathCase) {
        let written = &found.value;
        // GET includes HEAD.
        let allows = |method: &&str| {
            let own = |word: &str| written.methods.iter().any(|own| own == word);
            written.methods.is_empty() || own(method) || (*method == "HEAD" && own("GET"))
        };
        let claim = ClaimedPath {
            rule: written.name.clone(),
            pattern: pattern.to_vec(),
            methods: METHODS.into_iter().filter(allows).collect(),
            ignores_case: path_case == PathCase::Insensitive,
        };
        let others = self.paths.entry(pattern.iter().map(Segment::folded).collect()).or_default();
        let conflict = others.iter().find_map(|other| claim.conflict(&written.path, other));
        others.push(claim);
        if let Some(why) = conflict {
            self.fault(file, found.at("path"), format!("path: {why}"));
        }
    }
}

/// A rule's path and methods.
pub(super) struct ClaimedPath {
    rule: String,
    pattern: Vec<Segment>,
    methods: Vec<&'static str>,
    ignores_case: bool,
}

impl ClaimedPath {
    /// Why the two cannot stand side by side; their patterns are the same but for case.
    fn conflict(&self, path: &str, other: &Self) -> Option<String> {
        let rule = &other.rule;
        if self.ignores_case != other.ignores_case {
            // Neither would be more specific than the other.
            return Some(format!(
                "{path} is also the path of rule `{rule}`, but for case, and only one of their upstreams ignores case"
            ));
        }
        if !self.ignores_case && self.pattern != other.pattern {
            return None;
        }
        let method = self.methods.iter().find(|method| other.methods.contains(method))?;
        let case = if self.pattern == other.pattern { "" } else { ", but for case, which the upstream ignores" };
        Some(format!("{method} {path} already belongs to rule `{rule}`{case}"))
    }
}

/// File name and line, without the folder.
fn place(file: &str, line: usize) -> String {
    let name = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
    format!("{name}:{line}")
}

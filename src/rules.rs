//! Which path goes where, and who may take it. Parse, compile and decide are pure: no I/O after the
//! load, no clock of their own.

use std::sync::Arc;

use crate::domain::role::RoleName;
use crate::endpoints::{self, Endpoint};
use crate::metrics::RuleMetrics;

// From files to rules.
mod file;

mod pattern;

mod tree;

// What rules ask for.
pub mod condition;

pub mod matrix;

pub mod rate;

// Whether they admit a request, and why.
pub mod judge;

pub mod case;

pub mod explain;

use condition::Condition;
pub use file::{RuleFault, load_dir, load_texts};
use matrix::MatrixAccess;
use rate::Rate;
use tree::Tree;

/// The rules that the repository ships, for the demo.
pub const SHIPPED: &[(&str, &str)] = &[
    ("approvals.toml", include_str!("../lua-free-rules/approvals.toml")),
    ("clients.toml", include_str!("../lua-free-rules/clients.toml")),
    ("conversations.toml", include_str!("../lua-free-rules/conversations.toml")),
    ("diagnostics.toml", include_str!("../lua-free-rules/diagnostics.toml")),
    ("knowledge.toml", include_str!("../lua-free-rules/knowledge.toml")),
    ("matrix.toml", include_str!("../lua-free-rules/matrix.toml")),
    ("queue.toml", include_str!("../lua-free-rules/queue.toml")),
    SHIPPED_RATES,
    ("sockets.toml", include_str!("../lua-free-rules/sockets.toml")),
];

/// The rates of our own endpoints, in force for every endpoint that no other file names.
const SHIPPED_RATES: (&str, &str) = ("signin.toml", include_str!("../lua-free-rules/signin.toml"));

/// The methods that rules can name. Others are refused everywhere: `TRACE` would show headers,
/// `CONNECT` would open tunnels, and lower-case ones are read differently by different servers.
pub const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Who may take a path, before roles narrow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    Public,
    /// Everybody with a valid token.
    SignedIn,
    /// Whom the matrix grants it.
    Matrix(MatrixAccess),
}

/// Whether a rule or a rate is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Yes.
    #[default]
    Enforce,
    /// No: what it would do is counted and logged.
    Shadow,
}

/// Whether the upstream gets to see the caller's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardToken {
    /// No: it gets the identity headers instead.
    Never,
    /// Yes, because the rule says so.
    AsSent,
}

/// Which signed word about the caller the upstream gets beside the identity headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AssertionKind {
    /// One of the session, reused while it is fresh.
    #[default]
    Session,
    /// One of this request alone.
    Request,
    /// None.
    Off,
}

impl AssertionKind {
    /// All of them, as they are written.
    pub const WORDS: [&str; 3] = ["session", "request", "off"];

    /// From its word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Session, Self::Request, Self::Off].into_iter().find(|kind| kind.as_str() == word)
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Request => "request",
            Self::Off => "off",
        }
    }
}

/// The upstream of a rule: its name, and its place among the configured ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamRef {
    /// As configured.
    pub name: Arc<str>,
    /// Position among the configured upstreams, so that no name is looked up per request.
    pub index: usize,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Its unique name; the label in logs and metrics.
    pub name: Arc<str>,
    /// Its path, as it is written.
    pub path: Box<str>,
    /// Its file and line.
    pub place: String,
    /// Its methods; empty means all of [`METHODS`].
    pub methods: Vec<String>,
    /// The upstream that answers.
    pub upstream: UpstreamRef,
    /// Who may.
    pub access: Access,
    /// Which active roles may; empty means that it does not matter.
    pub roles: Vec<RoleName>,
    /// From where; empty means from everywhere.
    pub networks: Vec<ipnet::IpNet>,
    /// Under which condition.
    pub when: Option<Condition>,
    /// Whether a fresh one-time password is needed.
    pub step_up: bool,
    /// How often.
    pub rates: Vec<Rate>,
    /// Whether it is enforced.
    pub mode: Mode,
    /// Most sockets that one person may have open.
    pub most_sockets: Option<usize>,
    /// Whether the token goes along.
    pub forward_token: ForwardToken,
    /// In which signed form the identity goes along.
    pub assertion: AssertionKind,
    /// Its counters.
    pub metrics: RuleMetrics,
}

impl Rule {
    fn takes(&self, method: &str) -> bool {
        if self.methods.is_empty() {
            return METHODS.contains(&method);
        }
        // HEAD is GET without the body: whoever may see the one may see the other.
        self.methods.iter().any(|own| own == method || (own == "GET" && method == "HEAD"))
    }

    /// The methods that it takes, for an `Allow`.
    fn taken(&self) -> Vec<&str> {
        if self.methods.is_empty() { METHODS.to_vec() } else { self.methods.iter().map(String::as_str).collect() }
    }
}

/// What the rules say about a path.
#[derive(Debug)]
pub enum Lookup<'a> {
    /// This rule decides.
    Rule(&'a Arc<Rule>),
    /// The path is known, but not with this method; these are.
    OtherMethods(String),
    /// No rule names the path.
    Nothing,
}

/// All rules, compiled.
#[derive(Debug)]
pub struct RuleSet {
    tree: Tree,
    count: usize,
    cases: usize,
    /// By endpoint.
    own_rates: Vec<Vec<Rate>>,
}

impl RuleSet {
    /// How many rules there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many cases held.
    pub fn cases(&self) -> usize {
        self.cases
    }

    /// The rates of one of our own endpoints.
    pub fn rates_of(&self, endpoint: Endpoint) -> &[Rate] {
        self.own_rates.get(endpoint as usize).map_or(&[], Vec::as_slice)
    }

    /// Every rule whose path fits, the most specific first.
    pub fn candidates(&self, path: &str) -> Vec<&Arc<Rule>> {
        let mut found = Vec::new();
        if let Some(path) = path.strip_prefix('/') {
            self.tree.all(path, &mut found);
        }
        found
    }

    /// The rule for a canonical path. The most specific path wins, never the order of the files.
    pub fn find(&self, method: &str, path: &str) -> Lookup<'_> {
        let found = path.strip_prefix('/').and_then(|path| self.tree.find(path));
        let Some(rules) = found else { return Lookup::Nothing };
        match rules.iter().find(|rule| rule.takes(method)) {
            Some(rule) => Lookup::Rule(rule),
            None => Lookup::OtherMethods(endpoints::allow(rules.iter().flat_map(|rule| rule.taken()))),
        }
    }
}

#[cfg(test)]
mod tests;

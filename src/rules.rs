//! Which path goes where, and who may take it. Parse, compile and decide are pure: no I/O after the
//! load, no clock of their own.
//!
//! This is the core of the rule language: path, methods, upstream and who. Conditions, the matrix,
//! rates and shadow mode are further fields of [`Rule`] and further checks beside [`Access`].

use std::sync::Arc;

use crate::domain::role::RoleName;
use crate::domain::session::Session;
use crate::error::Forbidden;
use crate::metrics::RuleMetrics;

mod file;

mod pattern;

mod tree;

pub use file::{RuleFault, load_dir, load_texts};
use tree::Tree;

/// The rules that the repository ships, for the demo.
pub const SHIPPED: &[(&str, &str)] = &[("helpdesk.toml", include_str!("../lua-free-rules/helpdesk.toml"))];

/// The methods that rules can name. Others are refused everywhere: `TRACE` would show headers,
/// `CONNECT` would open tunnels, and lower-case ones are read differently by different servers.
pub const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Who may take a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    Public,
    /// Everybody with a valid token.
    SignedIn,
    /// Whoever's active role is one of these.
    Roles(Vec<RoleName>),
}

impl Access {
    /// Whether this session may; the reason when not. The active role counts, not the held ones.
    pub fn admits(&self, session: &Session) -> Result<(), Forbidden> {
        match self {
            Access::Public | Access::SignedIn => Ok(()),
            Access::Roles(roles) if roles.contains(&session.current_role) => Ok(()),
            Access::Roles(roles) => Err(Forbidden::RoleRequired(roles.clone())),
        }
    }
}

/// Whether the upstream gets to see the caller's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardToken {
    /// No: it gets the identity headers instead.
    Never,
    /// Yes, because the rule says so.
    AsSent,
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
    /// Its methods; empty means all.
    pub methods: Vec<String>,
    /// The upstream that answers.
    pub upstream: UpstreamRef,
    /// Who may.
    pub access: Access,
    /// Whether the token goes along.
    pub forward_token: ForwardToken,
    /// Its counters.
    pub metrics: RuleMetrics,
}

impl Rule {
    fn takes(&self, method: &str) -> bool {
        // HEAD is GET without the body: whoever may see the one may see the other.
        self.methods.is_empty() || self.methods.iter().any(|own| own == method || (own == "GET" && method == "HEAD"))
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
}

impl RuleSet {
    /// How many rules there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The rule for a canonical path. The most specific path wins, never the order of the files.
    pub fn find(&self, method: &str, path: &str) -> Lookup<'_> {
        let found = path.strip_prefix('/').and_then(|path| self.tree.find(path));
        let Some(rules) = found else { return Lookup::Nothing };
        match rules.iter().find(|rule| rule.takes(method)) {
            Some(rule) => Lookup::Rule(rule),
            None => {
                let methods: Vec<&str> =
                    rules.iter().flat_map(|rule| rule.methods.iter().map(String::as_str)).collect();
                Lookup::OtherMethods(methods.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;

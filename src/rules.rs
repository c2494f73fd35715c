//! Rules: which path goes to which upstream, and who may use it. Parsing, compiling and evaluating are pure: no I/O
//! after the load and no clock. Running the cases of rule files is left to `explain`, which runs the whole pipeline.

use std::sync::Arc;

use http::HeaderValue;

use crate::config::{PathCase, UpstreamProtocol};
use crate::domain::role::RoleName;
use crate::domain::secret::Digest;
use crate::domain::session::{Session, Stage};
use crate::endpoints::{self, Endpoint};
use crate::metrics::RuleMetrics;

// From files to rules.
mod file;

mod pattern;

mod tree;

mod routes;

// What rules require.
pub mod condition;

pub mod matrix;

pub mod rate;

// Whether they admit a request.
pub mod evaluate;

pub mod case;

use case::Case;
use condition::Condition;
pub use file::{RuleFault, load_dir, load_texts};
use matrix::MatrixAccess;
use rate::Rate;
pub use routes::CaseGap;
use routes::Routes;
use tree::Segment;

/// The rule files in the repository, for the demo.
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

/// Default rates of the gateway's own endpoints, for those that no loaded file mentions.
const SHIPPED_RATES: (&str, &str) = ("signin.toml", include_str!("../lua-free-rules/signin.toml"));

/// The methods that rules can name. All others are refused: `TRACE` reflects headers, `CONNECT` opens tunnels, and
/// servers disagree about lower-case methods.
pub const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Who may use a rule's path, before `roles` narrows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every client.
    Public,
    /// Every caller with a valid token.
    SignedIn,
    /// The roles that the matrix grants it to.
    Matrix(MatrixAccess),
}

/// Whether a rule or a rate is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Refusals take effect.
    #[default]
    Enforce,
    /// Refusals are only counted and logged.
    Shadow,
}

/// Whether the upstream gets the caller's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardToken {
    /// The token is stripped; the identity headers take its place.
    Never,
    /// The token is forwarded, beside the identity headers.
    AsSent,
}

/// Who answers preflights and writes the CORS headers of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CorsHandling {
    /// The gateway, for the origins of its configuration. Those of the upstream are removed.
    #[default]
    Gateway,
    /// The upstream.
    Upstream,
}

impl CorsHandling {
    /// Every value, as rule files spell it.
    pub const WORDS: [&str; 2] = ["gateway", "upstream"];

    /// Parses the value of a rule file.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "gateway" => Some(Self::Gateway),
            "upstream" => Some(Self::Upstream),
            _ => None,
        }
    }
}

/// Which signed assertion the upstream gets beside the identity headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AssertionKind {
    /// One per session, reused while it is fresh.
    #[default]
    Session,
    /// One per request, valid for its method and path.
    Request,
    /// None.
    Off,
}

impl AssertionKind {
    /// Every value, as rule files spell it.
    pub const WORDS: [&str; 3] = ["session", "request", "off"];

    /// Parses the value of a rule file.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Session, Self::Request, Self::Off].into_iter().find(|kind| kind.as_str() == word)
    }

    /// The value as rule files spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Request => "request",
            Self::Off => "off",
        }
    }
}

/// The upstream of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamRef {
    /// The configured name.
    pub name: Arc<str>,
    /// The index among the configured upstreams, so that requests need no lookup by name.
    pub index: usize,
    /// Whether its rules tell upper from lower case.
    pub path_case: PathCase,
    /// The version of HTTP that it gets.
    pub protocol: UpstreamProtocol,
    /// The `Host` that it gets instead of the client's.
    pub host: Option<HeaderValue>,
}

/// A compiled rule.
#[derive(Debug)]
pub struct Rule {
    /// The unique name; the label in logs and metrics.
    pub name: Arc<str>,
    /// The path pattern, as the file has it.
    pub path: Box<str>,
    /// The compiled pattern.
    pattern: Box<[Segment]>,
    /// File and line.
    pub place: String,
    /// The methods; empty means all of [`METHODS`].
    pub methods: Vec<String>,
    /// The upstream that answers.
    pub upstream: UpstreamRef,
    /// Who may use the path.
    pub access: Access,
    /// The active roles that may use it; empty means any.
    pub roles: Vec<RoleName>,
    /// The client networks that may use it; empty means any.
    pub networks: Vec<ipnet::IpNet>,
    /// The condition that must hold.
    pub when: Option<Condition>,
    /// Whether a recent one-time password is required.
    pub step_up: bool,
    /// The rate limits.
    pub rates: Vec<Rate>,
    /// Whether the rule is enforced; for a given caller see [`mode_for`](Self::mode_for).
    pub mode: Mode,
    /// Whether shadow mode also lets callers pass who are not signed in.
    pub shadow_anonymous: bool,
    /// The most WebSockets that one employee may have open.
    pub most_sockets: Option<usize>,
    /// Whether the upstream gets the token.
    pub forward_token: ForwardToken,
    /// Which assertion the upstream gets.
    pub assertion: AssertionKind,
    /// Who handles CORS.
    pub cors: CorsHandling,
    /// The rule's metrics.
    pub metrics: RuleMetrics,
}

impl Rule {
    /// Whether the rule applies to a method. GET includes HEAD, which is a GET without the response body.
    pub fn allows_method(&self, method: &str) -> bool {
        if self.methods.is_empty() {
            return METHODS.contains(&method);
        }
        self.methods.iter().any(|own| own == method || (own == "GET" && method == "HEAD"))
    }

    /// The mode that applies to a caller. Shadow mode tries a policy out, it does not switch sign-in off: without a full
    /// session the rule is enforced, unless it is public or says `shadow_anonymous`.
    pub fn mode_for(&self, session: Option<&Session>) -> Mode {
        let is_signed_in = session.is_some_and(|session| session.stage == Stage::Full);
        if is_signed_in || self.access == Access::Public || self.shadow_anonymous { self.mode } else { Mode::Enforce }
    }

    fn allowed_methods(&self) -> Vec<&str> {
        if self.methods.is_empty() { METHODS.to_vec() } else { self.methods.iter().map(String::as_str).collect() }
    }
}

/// The result of [`RuleSet::find`].
#[derive(Debug)]
pub enum RuleMatch<'a> {
    /// This rule decides.
    Rule(&'a Arc<Rule>),
    /// Rules have the path, but not with this method. Holds the value of `Allow`.
    OtherMethods(String),
    /// No rule has the path.
    NotFound,
}

/// All rules, compiled.
#[derive(Debug)]
pub struct RuleSet {
    routes: Routes,
    all: Vec<Arc<Rule>>,
    cases: Vec<Case>,
    /// By endpoint number.
    own_rates: Vec<Arc<[Rate]>>,
    digest: Digest,
}

impl RuleSet {
    /// The number of rules.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Rules that a service which ignores case would let clients bypass, unless `path_case` says that it does not.
    pub fn case_gaps(&self) -> impl Iterator<Item = CaseGap<'_>> {
        routes::case_gaps(&self.all)
    }

    /// All rules, in the order of the files.
    pub fn all(&self) -> &[Arc<Rule>] {
        &self.all
    }

    /// The digest of the files: gateways with the same rules have the same.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The number of cases.
    pub fn cases(&self) -> usize {
        self.cases.len()
    }

    /// The cases of the rule files, for `explain::check_cases`.
    pub(crate) fn all_cases(&self) -> &[Case] {
        &self.cases
    }

    /// The rates of one of the gateway's own endpoints.
    pub fn rates_of(&self, endpoint: Endpoint) -> Arc<[Rate]> {
        self.own_rates.get(endpoint as usize).cloned().unwrap_or_default()
    }

    /// Every rule whose path matches, most specific first; none for a reserved path.
    pub fn candidates(&self, path: &str) -> Vec<&Arc<Rule>> {
        match path.strip_prefix('/') {
            Some(rest) if !endpoints::is_reserved(path) => self.routes.all(rest),
            _ => Vec::new(),
        }
    }

    /// The rule for a method and a canonical path. The most specific path wins, whatever the order of the files.
    pub fn find(&self, method: &str, path: &str) -> RuleMatch<'_> {
        let found = path.strip_prefix('/').and_then(|path| self.routes.find(path));
        let Some(rules) = found else { return RuleMatch::NotFound };
        match rules.iter().find(|rule| rule.allows_method(method)) {
            Some(rule) => RuleMatch::Rule(rule),
            None => RuleMatch::OtherMethods(methods_of(rules)),
        }
    }

    /// Whether a rule for a canonical path, of whatever method, leaves CORS to its upstream.
    pub fn leaves_cors_to_upstream(&self, path: &str) -> bool {
        let rules = path.strip_prefix('/').and_then(|path| self.routes.find(path)).unwrap_or_default();
        rules.iter().any(|rule| rule.cors == CorsHandling::Upstream)
    }

    /// The methods of the rules for a canonical path, as `Allow` lists them.
    pub fn methods(&self, path: &str) -> String {
        path.strip_prefix('/').and_then(|path| self.routes.find(path)).map(methods_of).unwrap_or_default()
    }
}

fn methods_of(rules: &[Arc<Rule>]) -> String {
    endpoints::allow(rules.iter().flat_map(|rule| rule.allowed_methods()))
}

#[cfg(test)]
mod tests;

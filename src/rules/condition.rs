//! The `when` of a rule: a condition in CEL over `identity` and `request`, type-checked at load.
//!
//! The `cel` crate provides the parser only. Its output is compiled into a tree of this module, in which every node
//! has a type and a bounded cost; anything else is a fault at load. The crate's interpreter was rejected: it boxes the
//! variables for each evaluation, finds type errors only at evaluation, and compiles the pattern of `matches` on every
//! call.
//!
//! The language:
//! - the strings `identity.employee_id`, `.name`, `.corp_id`, `.department`, `.current_role`,
//!   `.login_source`, `.login_method`; the list of strings `identity.roles`;
//! - the strings `request.method`, `.path` and `.address` (IPv4-mapped addresses are written as IPv4); the path of an
//!   upstream that ignores case is folded, and so is what it is compared with;
//! - the literals `true`, `false`, strings, integers and lists of strings;
//! - `!`, `&&`, `||`, `?:` on booleans, `==`, `!=`, `<`, `<=`, `>`, `>=`, and `in` for lists;
//! - `size(x)`, `x.contains(y)`, `x.startsWith(y)`, `x.endsWith(y)`, `x.matches("literal")`;
//! - `list.exists(each, ...)` and `list.all(each, ...)` for `identity.roles` and literal lists;
//! - `has(identity.x)`: whether the field is not empty, as CEL defines it for typed messages.
//!
//! Without an identity (a public rule, no token) its strings and its list are empty, so a comparison with a non-empty
//! string is false without `has()`. Negative conditions are the trap: `identity.department != "IT"` holds for every
//! anonymous request.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::thread;

use crate::config::PathCase;
use crate::domain::{path, role};

mod pattern;

mod read;

mod tree;

use tree::{Bindings, Field, Test, Variables};

/// The longest condition, in bytes.
pub const LONGEST_TEXT: usize = 1_024;

/// The deepest nesting of a condition.
pub const DEEPEST: u16 = 32;

/// The highest worst-case cost of a condition. Each node costs 1, an operation on strings 1 more per 8 bytes of their
/// longest length, and the bodies of `exists` and `all` are multiplied by the longest list. A unit takes up to 25 ns in
/// a release build, so a condition takes at most 0.3 ms.
pub const HIGHEST_COST: u64 = 10_000;

/// The most roles of an identity; conditions that read more are not evaluated.
pub const MOST_ROLES: usize = role::MOST;

/// The longest role name, in bytes.
pub const LONGEST_ROLE: usize = 64;

/// The longest path, in bytes; longer ones are refused earlier.
pub const LONGEST_PATH: usize = path::LONGEST;

/// The longest value of any other field, in bytes.
pub const LONGEST_FIELD: usize = 256;

/// The stack of the parser thread. The parser recurses once per operator and needs half a megabyte for the deepest
/// condition of [`LONGEST_TEXT`] bytes; unused stack takes no memory.
const PARSER_STACK: usize = 16 << 20;

/// The `identity` variable.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdentityVariables<'a> {
    /// `identity.employee_id`
    pub employee_id: &'a str,
    /// `identity.name`
    pub name: &'a str,
    /// `identity.corp_id`
    pub corp_id: &'a str,
    /// `identity.department`
    pub department: &'a str,
    /// `identity.roles`
    pub roles: &'a [&'a str],
    /// `identity.current_role`
    pub current_role: &'a str,
    /// `identity.login_source`
    pub login_source: &'a str,
    /// `identity.login_method`
    pub login_method: &'a str,
}

/// The `request` variable.
#[derive(Debug, Clone, Copy)]
pub struct RequestVariables<'a> {
    /// `request.method`
    pub method: &'a str,
    /// `request.path`, in canonical form
    pub path: &'a str,
    /// `request.address`
    pub address: IpAddr,
}

/// A compiled condition.
pub struct Condition {
    text: Box<str>,
    test: Test,
    /// The fields that it reads; only these are checked against the length limits.
    fields: Vec<Field>,
    roles: RolesUse,
    path_case: PathCase,
}

/// Whether a condition reads `identity.roles`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RolesUse {
    Unread,
    Read,
}

impl Condition {
    /// Compiles a condition of a rule whose upstream has this `path_case`. The error names what was found and what is
    /// allowed.
    pub fn compile(text: &str, path_case: PathCase) -> Result<Condition, String> {
        if text.len() > LONGEST_TEXT {
            return Err(format!("the condition has {} bytes; at most {LONGEST_TEXT} are allowed", text.len()));
        }
        // A thread of its own, for its stack and to contain a panic of the parser.
        thread::scope(|scope| {
            let reading = thread::Builder::new().name("condition".to_owned()).stack_size(PARSER_STACK);
            match reading.spawn_scoped(scope, || read::condition(text, path_case)) {
                Ok(reading) => reading.join().unwrap_or_else(|_| Err(read::UNREADABLE.to_owned())),
                Err(error) => Err(format!("the condition cannot be parsed: {error}")),
            }
        })
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it reads the path and ignores its case, as the upstream does.
    pub fn ignores_case(&self) -> bool {
        self.path_case == PathCase::Insensitive && self.fields.contains(&Field::Path)
    }

    /// Whether it reads the client's address.
    pub fn reads_address(&self) -> bool {
        self.fields.contains(&Field::Address)
    }

    /// Evaluates the condition. Fails if a field exceeds the limits of this module, which bound the cost; the caller must
    /// then refuse the request.
    pub fn holds(
        &self,
        identity: Option<&IdentityVariables<'_>>,
        request: &RequestVariables<'_>,
    ) -> Result<bool, String> {
        let address = if self.fields.contains(&Field::Address) {
            request.address.to_canonical().to_string()
        } else {
            String::new()
        };
        let identity = identity.copied().unwrap_or_default();
        let path = if self.ignores_case() { path::fold_case(request.path) } else { Cow::Borrowed(request.path) };
        let variables = Variables { identity, method: request.method, path: &path, address: &address };
        for field in &self.fields {
            let length = field.read(&variables).len();
            if length > field.longest() {
                return Err(format!("{field} has {length} bytes; at most {} are allowed", field.longest()));
            }
        }
        if self.roles == RolesUse::Read {
            let roles = variables.identity.roles;
            if roles.len() > MOST_ROLES {
                return Err(format!("there are {} roles; at most {MOST_ROLES} are allowed", roles.len()));
            }
            if let Some(role) = roles.iter().find(|role| role.len() > LONGEST_ROLE) {
                return Err(format!("a role has {} bytes; at most {LONGEST_ROLE} are allowed", role.len()));
            }
        }
        self.test.holds(Bindings::of(&variables))
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests;

//! The `when` of a rule: a condition in CEL over `identity` and `request`, checked whole at load.
//!
//! Only CEL's grammar is taken from the `cel` crate. What it read is turned into a small tree of
//! ours, in which every node has a type and a bounded cost; what does not fit is refused at load.
//! Its interpreter was rejected: it builds a context of boxed values for each evaluation, finds type
//! faults only when the request is there, and compiles the pattern of `matches` on every call.
//!
//! What can be written:
//! - the texts `identity.employee_id`, `.name`, `.corp_id`, `.department`, `.current_role`,
//!   `.login_source`, `.login_method`; the list of texts `identity.roles`;
//! - the texts `request.method`, `.path` and `.address` (an IPv4 address is always in its IPv4 form);
//! - `true`, `false`, texts, whole numbers and lists of texts as literals;
//! - `!`, `&&`, `||`, `?:` between truths, `==`, `!=`, `<`, `<=`, `>`, `>=`, and `in` for lists;
//! - `size(x)`, `x.contains(y)`, `x.startsWith(y)`, `x.endsWith(y)`, `x.matches("literal")`;
//! - `list.exists(each, ...)` and `list.all(each, ...)` for `identity.roles` and literal lists;
//! - `has(identity.x)`: whether the field is not empty, as CEL defines it for typed messages.
//!
//! Without an identity (a public rule, no token) all its texts and its list are empty. So a
//! condition needs no `has()`, and one that compares with a text that is not empty does not hold.
//! Beware of the negative ones: `identity.department != "IT"` holds for everybody who is not known.

use std::fmt;
use std::net::IpAddr;
use std::thread;

use crate::domain::{path, role};

mod pattern;

mod read;

mod tree;

use tree::{Facts, Field, Test, View};

/// The longest text of a condition, in bytes.
pub const LONGEST_TEXT: usize = 1_024;

/// How deep a condition may be nested.
pub const DEEPEST: u16 = 32;

/// The most that a condition may cost in the worst case. Each node costs 1, and an operation on
/// texts 1 more for every 8 bytes that it may have to look at; the body of `exists` and `all` costs
/// as often as the list can be long. A unit takes up to 25 ns in a release build, so that no condition
/// takes more than 0.3 ms.
pub const HIGHEST_COST: u64 = 10_000;

/// The most roles of an identity whose conditions can be judged.
pub const MOST_ROLES: usize = role::MOST;

/// The longest role, in bytes: as for every role name.
pub const LONGEST_ROLE: usize = 64;

/// The longest path, in bytes; no longer one comes this far.
pub const LONGEST_PATH: usize = path::LONGEST;

/// The longest of all other texts, in bytes.
pub const LONGEST_FIELD: usize = 256;

/// Room for `cel`'s parser, which recurses once per operator: the deepest text of [`LONGEST_TEXT`]
/// bytes needs half a megabyte. Only what is used is ever backed by memory.
const PARSER_STACK: usize = 16 << 20;

/// Who asks, as conditions see it.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdentityFacts<'a> {
    /// `identity.employee_id`
    pub employee_id: &'a str,
    /// `identity.name`
    pub name: &'a str,
    /// `identity.corp_id`
    pub corp_id: &'a str,
    /// `identity.department`
    pub department: &'a str,
    /// `identity.roles`: all that are held.
    pub roles: &'a [&'a str],
    /// `identity.current_role`: the active one.
    pub current_role: &'a str,
    /// `identity.login_source`
    pub login_source: &'a str,
    /// `identity.login_method`
    pub login_method: &'a str,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts<'a> {
    /// `request.method`
    pub method: &'a str,
    /// `request.path`
    pub path: &'a str,
    /// `request.address`
    pub address: IpAddr,
}

/// A compiled condition.
pub struct Condition {
    text: Box<str>,
    test: Test,
    /// What it looks at: only that has to keep to the limits.
    fields: Vec<Field>,
    roles: RolesUse,
}

/// Whether a condition looks at `identity.roles`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RolesUse {
    Unread,
    Read,
}

impl Condition {
    /// Compiles and checks. The error is a sentence for the operator: what was found and what is
    /// allowed.
    pub fn compile(text: &str) -> Result<Condition, String> {
        if text.len() > LONGEST_TEXT {
            return Err(format!("the condition has {} bytes; at most {LONGEST_TEXT} are allowed", text.len()));
        }
        // A thread of its own, for the stack and because a panic of the parser ends there.
        thread::scope(|scope| {
            let reading = thread::Builder::new().name("condition".to_owned()).stack_size(PARSER_STACK);
            match reading.spawn_scoped(scope, || read::condition(text)) {
                Ok(reading) => reading.join().unwrap_or_else(|_| Err(read::UNREADABLE.to_owned())),
                Err(error) => Err(format!("the condition cannot be read: {error}")),
            }
        })
    }

    /// The text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds; `Err` is why it cannot be told. That is so when a text or the list of
    /// roles is beyond the limits of this module: then the cost is not bounded, and whoever asks
    /// must refuse.
    pub fn holds(&self, identity: Option<&IdentityFacts<'_>>, request: &RequestFacts<'_>) -> Result<bool, String> {
        let address = if self.fields.contains(&Field::Address) {
            request.address.to_canonical().to_string()
        } else {
            String::new()
        };
        let identity = identity.copied().unwrap_or_default();
        let facts = Facts { identity, method: request.method, path: request.path, address: &address };
        for field in &self.fields {
            let length = field.read(&facts).len();
            if length > field.longest() {
                return Err(format!("{field} has {length} bytes; conditions take {}", field.longest()));
            }
        }
        if self.roles == RolesUse::Read {
            let roles = facts.identity.roles;
            if roles.len() > MOST_ROLES {
                return Err(format!("there are {} roles; conditions take {MOST_ROLES}", roles.len()));
            }
            if let Some(role) = roles.iter().find(|role| role.len() > LONGEST_ROLE) {
                return Err(format!("a role has {} bytes; conditions take {LONGEST_ROLE}", role.len()));
            }
        }
        self.test.holds(View::of(&facts))
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests;

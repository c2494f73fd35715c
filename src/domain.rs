//! The specification's nouns as types: employees, roles, sessions, tickets, rates, paths and the clock. Imports no
//! other module of the crate. "The specification" is the unified authentication service specification that deskgate
//! implements.

pub mod client;

pub mod clock;

pub mod device;

pub mod duration;

pub mod employee;

pub mod hop_by_hop;

pub mod identity;

pub mod language;

pub mod lockout;

pub mod path;

pub mod rate;

pub mod role;

pub mod secret;

pub mod session;

pub mod ticket;

pub mod write;

/// Defines a string newtype, one per kind of identifier, so that two kinds cannot be mixed up.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Wraps the text without checking it; input from outside is checked by its reader.
            pub fn new(text: impl Into<std::sync::Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
pub(crate) use identifier;

//! The specification's nouns as types: employees, roles, sessions, tickets, rates, paths and the clock. Imports no
//! other module of the crate. "The specification" is the unified authentication service specification that deskgate
//! implements.

pub mod byte_set;

pub mod client;

pub mod clock;

pub mod device;

pub mod duration;

pub mod employee;

pub mod finished_request;

pub mod gateway_status;

pub mod header_line;

pub mod header_name;

pub mod hop_by_hop;

pub mod host;

pub mod identity;

pub mod language;

pub mod link;

pub mod lockout;

pub mod network;

pub mod own_cookie;

pub mod partition;

pub mod path;

pub mod postgres_url;

pub mod rate;

pub mod ready_hash;

pub mod role;

pub mod scope;

pub mod secret;

pub mod session;

pub mod spoofable;

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

/// Defines a closed set of words, which rule files and headers spell alike.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$of])* $variant),+ }

        impl $name {
            /// Every value, as rule files spell it.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Parses the value of a rule file.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }

            /// The value as rule files and headers spell it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

//! The words of the specification as types. Uses nothing else of ours.

pub mod client;

pub mod clock;

pub mod device;

pub mod employee;

pub mod identity;

pub mod language;

pub mod lockout;

pub mod path;

pub mod phrase;

pub mod rate;

pub mod role;

pub mod secret;

pub mod session;

pub mod ticket;

/// A string newtype: one per kind of identifier, so that two kinds cannot be mixed up.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Takes the text as it is; whoever reads it from outside checks it first.
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

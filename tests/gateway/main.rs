//! The promises of the contract, each kept or broken by the real program: a file per endpoint and per promise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

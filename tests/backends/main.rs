//! One suite per trait; every implementation must pass it.

// A test may fail loudly; that is what it is for.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod directory;
mod store;

//! One suite per trait; every implementation must pass it.

mod directory;
mod store;

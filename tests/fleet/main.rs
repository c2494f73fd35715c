//! Several gateways on one Redis and one PostgreSQL act as one. Real servers, real gateways; one file per promise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Tests compare with the real clock.
#![allow(clippy::disallowed_methods)]

#[path = "../servers/servers.rs"]
mod servers;

// The path of a folder, so that the files of the support are found where they are.
#[path = "../gateway"]
mod gateway_tests {
    pub mod support;
}

use gateway_tests::support;

mod copy;

mod fleet;

mod sessions;

mod keys;

mod sign_in;

mod outage;

mod operate;

mod telemetry;

mod faults;

mod rotation;

mod storm;

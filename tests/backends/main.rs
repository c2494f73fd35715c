//! One suite per storage trait; every implementation must pass it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]
// Tests compare with the real clock and damage databases on purpose.
#![allow(clippy::disallowed_methods)]

mod directory;
mod directory_copy;
mod directory_races;
mod directory_views;
mod keys;
mod leases;
mod once;
mod postgres;
mod rates;
mod redis_failover;
mod redis_feed;
mod redis_servers;
mod redis_store;
#[path = "../servers/servers.rs"]
mod servers;
mod socket_slots;
mod store;

//! The Redis store: sessions, tickets and the change feed on servers that several gateways share.
//!
//! Every record belongs to a partition ([`Partition`](crate::domain::partition::Partition)), whose keys share a hash tag:
//! a change and its announcement on the partition's stream are one script on one slot. Questions that span partitions
//! ask all of them in one round trip per server.

mod connect;
mod keys;
mod layout;
mod link;
mod script;
mod servers;

pub use keys::RedisKeys;
pub use script::{RedisCall, ServerScript};
pub use servers::RedisServers;

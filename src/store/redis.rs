//! The Redis store: sessions, tickets and the change feed on servers that several gateways share.
//!
//! Every record belongs to a partition ([`Partition`](crate::domain::partition::Partition)), whose keys share a hash tag:
//! a change and its announcement on the partition's stream are one script on one slot. Questions that span partitions
//! ask all of them in one round trip per server.

mod claims;
mod connect;
mod keys;
mod layout;
mod leases;
mod link;
mod script;
mod servers;
mod socket_slots;

pub use claims::RedisClaims;
pub use keys::RedisKeys;
pub use leases::RedisLeases;
pub use script::{RedisCall, ServerScript};
pub use servers::RedisServers;
pub use socket_slots::RedisSocketSlots;

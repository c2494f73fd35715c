//! The names of all keys. Every key belongs to a partition, whose hash tag keeps its keys in one slot of a cluster. Names
//! are short: a million sessions have a million of them.

use crate::domain::partition::Partition;

/// Names keys: `deskgate:{p07}:s:ID`.
#[derive(Debug, Clone)]
pub struct RedisKeys {
    prefix: String,
}

impl RedisKeys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// A key of a partition, for parts of the store that name their own: the first part of `name` must be unique.
    pub fn key(&self, partition: Partition, name: &str) -> String {
        format!("{}:{{p{:02}}}:{name}", self.prefix, partition.number())
    }

    /// A session's record.
    pub(super) fn session(&self, partition: Partition, id: &str) -> String {
        self.key(partition, &format!("s:{id}"))
    }

    /// Denies a token.
    pub(super) fn denial(&self, partition: Partition, id: &str) -> String {
        self.key(partition, &format!("d:{id}"))
    }

    /// A ticket's record.
    pub(super) fn ticket(&self, partition: Partition, id: &str) -> String {
        self.key(partition, &format!("t:{id}"))
    }

    /// The ticket of a scan id.
    pub(super) fn scan(&self, partition: Partition, id: &str) -> String {
        self.key(partition, &format!("q:{id}"))
    }

    /// The sessions of a partition by employee and by platform account: a sorted set.
    pub(super) fn index(&self, partition: Partition) -> String {
        self.key(partition, "i")
    }

    /// The signing keys of a partition's sessions, each with the last expiry of its sessions: a hash.
    pub(super) fn signing_keys(&self, partition: Partition) -> String {
        self.key(partition, "k")
    }

    /// The last sessions of a partition: a list.
    pub(super) fn newest(&self, partition: Partition) -> String {
        self.key(partition, "n")
    }

    /// The change feed of a partition: a stream.
    pub(super) fn feed(&self, partition: Partition) -> String {
        self.key(partition, "f")
    }

    /// The gateways of the fleet: a hash.
    pub(super) fn gateways(&self, partition: Partition) -> String {
        self.key(partition, "g")
    }

    /// Held by the gateway that sweeps the partition.
    pub(super) fn sweep_lock(&self, partition: Partition) -> String {
        self.key(partition, "w")
    }

    /// Written by the readiness check.
    pub(super) fn probe(&self, partition: Partition) -> String {
        self.key(partition, "p")
    }

    /// The slot of a partition's keys in a cluster.
    pub(super) fn slot(partition: Partition) -> u16 {
        crc16(format!("p{:02}", partition.number()).as_bytes()) % 16384
    }
}

/// The checksum that clusters place keys by: CRC16, XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_the_one_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn keys_of_a_partition_share_a_hash_tag() {
        let partition = Partition::of("s1");
        assert_eq!(RedisKeys::new("deskgate").session(partition, "s1"), "deskgate:{p14}:s:s1");
        assert_eq!(RedisKeys::slot(partition), crc16(b"p14") % 16384);
    }
}

//! Partitions of the shared store: every record belongs to one, so that a change and its announcement are one step.

use serde::{Deserialize, Serialize};

/// A part of the shared store. In Redis it is a hash tag, so that all of its keys are on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(u8);

impl Partition {
    /// The number of partitions. It never changes: a record is found by the partition of its key.
    pub const COUNT: u8 = 64;

    /// Every partition.
    pub fn all() -> impl ExactSizeIterator<Item = Partition> {
        (0..Self::COUNT).map(Self)
    }

    /// The partition of a record with this key.
    pub fn of(key: &str) -> Self {
        // Programs of different versions must agree: FNV-1a, which is defined by its constants.
        let hash = key
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self(((hash ^ (hash >> 32)) % u64::from(Self::COUNT)) as u8)
    }

    /// Its number, below [`Partition::COUNT`].
    pub fn number(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_of_a_key_never_changes() {
        let numbers = ["", "s1", "deskgate", "员工"].map(|key| Partition::of(key).number());
        assert_eq!(numbers, [1, 14, 30, 29]);
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut counts = [0_usize; Partition::COUNT as usize];
        for number in 0..64_000 {
            counts[usize::from(Partition::of(&format!("session {number}")).number())] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}

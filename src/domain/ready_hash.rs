//! A hasher for keys that are hashes already: hashing them again would only take time.

use std::hash::{BuildHasherDefault, Hasher};

/// Takes a key for its own hash. Only for keys that clients cannot choose, and that call [`Hasher::write_u64`] once.
#[derive(Debug, Default)]
pub struct ReadyHash(u64);

/// What maps with such keys are made with.
pub type BuildReadyHash = BuildHasherDefault<ReadyHash>;

impl Hasher for ReadyHash {
    fn write(&mut self, bytes: &[u8]) {
        // No key does this. If one did, all of its bytes would count.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

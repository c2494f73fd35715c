//! The stored form of a password: an Argon2id PHC string.

use std::fmt;

use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Bytes of a new salt.
pub(super) const SALT: usize = 16;

/// Bytes of a new output.
pub(super) const OUTPUT: usize = 32;

/// Longest PHC string; longer than any accepted one can be.
const MAX_PHC_LENGTH: usize = 512;

/// The highest cost of a stored hash, so that a row in the table cannot demand all memory. 64 MiB, ten passes and four
/// lanes cover the defaults of other systems, whose hashes may have been imported.
const MAX_KIB: u32 = 64 * 1024;
const MAX_PASSES: u32 = 10;
const MAX_LANES: u32 = 4;

/// The cost parameters of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost(Params);

impl Cost {
    /// OWASP's first choice for Argon2id: 19 MiB, two passes, one lane.
    pub fn owasp() -> Self {
        const { assert!(Params::DEFAULT_M_COST == 19_456 && Params::DEFAULT_T_COST == 2 && Params::DEFAULT_P_COST == 1) };
        Self(Params::DEFAULT)
    }

    /// Memory in KiB, passes and lanes; `None` beyond the limits of Argon2 or of this gateway.
    pub fn new(kib: u32, passes: u32, lanes: u32) -> Option<Self> {
        if kib > MAX_KIB || passes > MAX_PASSES || lanes > MAX_LANES {
            return None;
        }
        Params::new(kib, passes, lanes, None).ok().map(Self)
    }

    /// Blocks of one KiB that a hash needs.
    pub(super) fn blocks(&self) -> usize {
        self.0.block_count()
    }

    /// Argon2id. `None` only for a salt or a length that [`PasswordHash::parse`] refuses, or too few blocks.
    pub(super) fn derive(&self, text: &[u8], salt: &[u8], length: usize, blocks: &mut [Block]) -> Option<Vec<u8>> {
        let mut output = vec![0; length];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, self.0.clone())
            .hash_password_into_with_memory(text, salt, &mut output, blocks)
            .ok()?;
        Some(output)
    }
}

/// Why a stored string is not a usable hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashFault {
    /// Not a complete PHC string.
    #[error("the password hash is damaged")]
    Damaged,
    /// Not Argon2id version 1.3.
    #[error("the password hash is not Argon2id version 19")]
    Unsupported,
    /// Its cost exceeds the limits.
    #[error("the password hash demands too much memory or time")]
    TooCostly,
}

/// A stored hash. Its `Debug` prints `***`: a hash in a log could be attacked offline.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    cost: Cost,
    salt: Vec<u8>,
    output: Vec<u8>,
}

impl PasswordHash {
    pub(super) fn new(cost: Cost, salt: [u8; SALT], output: [u8; OUTPUT]) -> Self {
        Self { cost, salt: salt.to_vec(), output: output.to_vec() }
    }

    pub(super) fn with_output(self, output: &[u8]) -> Self {
        Self { output: output.to_vec(), ..self }
    }

    /// Parses a PHC string. Its cost is limited here, so that later code need not check it.
    pub fn parse(text: &str) -> Result<Self, HashFault> {
        if text.len() > MAX_PHC_LENGTH {
            return Err(HashFault::Damaged);
        }
        let phc = argon2::PasswordHash::new(text).map_err(|_| HashFault::Damaged)?;
        if phc.algorithm != ARGON2ID_IDENT || phc.version != Some(Version::V0x13.into()) {
            return Err(HashFault::Unsupported);
        }
        let params = Params::try_from(&phc.params).map_err(|_| HashFault::Damaged)?;
        if !params.keyid().is_empty() || !params.data().is_empty() {
            return Err(HashFault::Unsupported);
        }
        let (Some(salt), Some(output)) = (&phc.salt, &phc.hash) else { return Err(HashFault::Damaged) };
        // A truncated output would match many passwords.
        if salt.len() < argon2::MIN_SALT_LEN || output.len() < SALT {
            return Err(HashFault::Damaged);
        }
        let cost = Cost::new(params.m_cost(), params.t_cost(), params.p_cost()).ok_or(HashFault::TooCostly)?;
        let hash = Self { cost, salt: salt.to_vec(), output: output.as_bytes().to_vec() };
        // The parser fills in missing fields, so a string that does not round-trip is damaged.
        if hash.phc() == text { Ok(hash) } else { Err(HashFault::Damaged) }
    }

    /// The PHC string to store.
    pub fn phc(&self) -> String {
        let (kib, passes, lanes) = (self.cost.0.m_cost(), self.cost.0.t_cost(), self.cost.0.p_cost());
        let (salt, output) = (STANDARD_NO_PAD.encode(&self.salt), STANDARD_NO_PAD.encode(&self.output));
        format!("$argon2id$v=19$m={kib},t={passes},p={lanes}${salt}${output}")
    }

    pub(super) fn cost(&self) -> &Cost {
        &self.cost
    }

    pub(super) fn salt(&self) -> &[u8] {
        &self.salt
    }

    pub(super) fn output(&self) -> &[u8] {
        &self.output
    }

    /// Whether a new hash would have other parameters.
    pub(super) fn is_outdated(&self, current: &Cost) -> bool {
        self.cost != *current || self.salt.len() < SALT || self.output.len() != OUTPUT
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests;

//! Sets of the bytes that a grammar allows, as tables: every byte of a target and a host is looked up.

/// A set of bytes.
pub struct ByteSet([bool; 256]);

impl ByteSet {
    /// ASCII letters and digits, and the bytes of `others`.
    pub const fn alphanumeric_and(others: &[u8]) -> Self {
        let mut set = [false; 256];
        let mut byte = 0;
        while byte < set.len() {
            set[byte] = (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        let mut at = 0;
        while at < others.len() {
            set[others[at] as usize] = true;
            at += 1;
        }
        Self(set)
    }

    /// Whether a byte is in the set.
    pub const fn contains(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }

    /// Whether all bytes of a text are in the set.
    pub fn contains_all(&self, text: impl AsRef<[u8]>) -> bool {
        text.as_ref().iter().all(|byte| self.contains(*byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_letters_digits_and_the_given_bytes_only() {
        static SET: ByteSet = ByteSet::alphanumeric_and(b"-\xff");
        for byte in 0..=u8::MAX {
            let expected = byte.is_ascii_alphanumeric() || byte == b'-' || byte == 0xff;
            assert_eq!(SET.contains(byte), expected, "{byte}");
        }
        assert!(SET.contains_all("aZ9-") && SET.contains_all("") && !SET.contains_all("a b"));
    }
}

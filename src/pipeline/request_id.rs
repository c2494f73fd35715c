//! Request ids: accepted from a trusted proxy, or generated without an allocation.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

use crate::domain::secret::random_bytes;

/// The id of a request: 8 to 64 letters, digits, `-`, `_` or `.`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId {
    length: u8,
    text: [u8; Self::LONGEST],
}

impl RequestId {
    const LONGEST: usize = 64;

    /// Generates an id: a random number of this process, then a counter, in 32 hexadecimal digits.
    pub fn fresh() -> Self {
        static PROCESS: LazyLock<[u8; 16]> = LazyLock::new(|| hexadecimal(u64::from_le_bytes(random_bytes())));
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let mut id = Self { length: 32, text: [0; Self::LONGEST] };
        id.text[..16].copy_from_slice(&*PROCESS);
        id.text[16..32].copy_from_slice(&hexadecimal(COUNT.fetch_add(1, Ordering::Relaxed)));
        id
    }

    /// Parses the `X-Request-Id` of a trusted proxy; `None` if it is malformed.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let fits = (8..=Self::LONGEST).contains(&text.len())
            && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
        if !fits {
            return None;
        }
        let mut id = Self { length: u8::try_from(text.len()).ok()?, text: [0; Self::LONGEST] };
        id.text[..text.len()].copy_from_slice(text);
        Some(id)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        // Both constructors write ASCII only.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The id as a header value.
    pub fn to_value(&self) -> HeaderValue {
        // Letters, digits and `-_.` are all legal in a header value.
        HeaderValue::from_bytes(self.as_bytes()).unwrap_or(HeaderValue::from_static("-"))
    }

    /// The id as ASCII bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

/// The hexadecimal digits of a number. Has neither branches nor a table, so that the compiler vectorizes the loop.
pub(super) fn hexadecimal(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        pair.copy_from_slice(&[byte >> 4, byte & 15]);
    }
    digits.map(|digit| digit + if digit < 10 { b'0' } else { b'a' - 10 })
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;

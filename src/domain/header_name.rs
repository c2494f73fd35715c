//! Comparing the names of headers, and of the options in `Connection`, without regard to case. Every request compares dozens of names.
//! Against a constant, the compiler turns [`is`] into a few instructions; `eq_ignore_ascii_case` takes several for each byte.

/// Whether a name is `lower`, which is in lower case.
#[inline]
pub fn is<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    let Ok(name) = <&[u8; N]>::try_from(name) else { return false };
    // No early return, and the same operations for every byte: so the compiler can take many bytes at once.
    let mut difference = 0;
    for (byte, expected) in name.iter().zip(lower) {
        let case = if expected.is_ascii_lowercase() { b'a' - b'A' } else { 0 };
        difference |= (byte | case) ^ expected;
    }
    difference == 0
}

/// Turns a name into lower case, four bytes at a time: most names are too short for the vector loop of `make_ascii_lowercase`.
#[inline]
pub fn make_lower(name: &mut [u8]) {
    let (pieces, rest) = name.as_chunks_mut::<4>();
    pieces.iter_mut().for_each(|piece| piece.make_ascii_lowercase());
    rest.make_ascii_lowercase();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte in every place of a name.
    fn altered<const N: usize>(name: &[u8; N]) -> impl Iterator<Item = [u8; N]> {
        (0..N).flat_map(move |at| {
            (0..=u8::MAX).map(move |byte| {
                let mut altered = *name;
                altered[at] = byte;
                altered
            })
        })
    }

    #[test]
    fn is_compares_as_eq_ignore_ascii_case_does() {
        for name in altered(b"Content-Length").chain(altered(b"content-length")) {
            assert_eq!(is(&name, b"content-length"), name.eq_ignore_ascii_case(b"content-length"), "{name:?}");
        }
        for name in altered(b"http2-Settings") {
            assert_eq!(is(&name, b"http2-settings"), name.eq_ignore_ascii_case(b"http2-settings"), "{name:?}");
        }
    }

    #[test]
    fn a_name_of_another_length_is_another_name() {
        for name in ["", "hos", "hostt", "content-length"] {
            assert!(!is(name.as_bytes(), b"host"), "{name}");
        }
    }

    #[test]
    fn make_lower_changes_capital_letters_only() {
        for length in 0..=20 {
            for byte in 0..=u8::MAX {
                let mut name = vec![byte; length];
                make_lower(&mut name);
                assert_eq!(name, vec![byte.to_ascii_lowercase(); length]);
            }
        }
    }
}

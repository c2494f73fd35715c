//! A header line of HTTP/1.1.

/// Writes a header line.
pub fn write_line(out: &mut Vec<u8>, name: impl AsRef<[u8]>, value: &[u8]) {
    for piece in [name.as_ref(), b": ", value, b"\r\n"] {
        out.extend_from_slice(piece);
    }
}

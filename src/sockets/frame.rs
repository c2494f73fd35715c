//! Tracks WebSocket frame boundaries (RFC 6455, section 5.2), so that the gateway's close frame goes between two frames.
//! Payloads are counted and not inspected, but for the code of a close frame; masking and fragmentation are left to the endpoints.

/// The opcode of a close frame.
const CLOSE: u8 = 0x8;

/// Tracks the frames of one direction, however its bytes are cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameTracker {
    /// The bytes of the current frame header so far.
    header: [u8; Self::MAX_HEADER],
    header_length: u8,
    /// The payload bytes of the current frame that are still to come.
    payload_left: u64,
    closed: bool,
    /// The code of the first close frame, as far as it has come.
    close_code: u16,
    close_code_bytes: u8,
}

/// The code of a close frame without one (RFC 6455, section 7.1.5).
const NO_CODE: u16 = 1005;

impl FrameTracker {
    /// Two bytes, eight of extended length, four of masking key.
    const MAX_HEADER: usize = 14;

    /// Tracks the next bytes of the direction.
    pub fn track(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let consumed = self.consume(bytes);
            bytes = &bytes[consumed..];
        }
    }

    /// Tracks bytes up to the next frame boundary and returns their number.
    pub fn track_to_boundary(&mut self, bytes: &[u8]) -> usize {
        let mut consumed = 0;
        while consumed < bytes.len() && !self.at_boundary() {
            consumed += self.consume(&bytes[consumed..]);
        }
        consumed
    }

    /// Whether the next byte begins a frame.
    pub fn at_boundary(&self) -> bool {
        self.header_length == 0 && self.payload_left == 0
    }

    /// Whether a close frame has passed; no frame may follow it.
    pub fn has_closed(&self) -> bool {
        self.closed
    }

    /// The code of the close frame that has passed; 1005 if it had none, `None` without such a frame.
    pub fn close_code(&self) -> Option<u16> {
        let code = if self.close_code_bytes == 2 { self.close_code } else { NO_CODE };
        self.closed.then_some(code)
    }

    /// Keeps the code, which is in the first two bytes of the payload.
    fn read_close_code(&mut self, payload: &[u8]) {
        // The header of the frame is still there: nothing follows a close frame that could replace it.
        let mask = match self.header {
            [_, second, ..] if second & 0x80 == 0 => [0; 4],
            [_, _, a, b, c, d, ..] => [a, b, c, d],
        };
        for byte in payload.iter().take(2_usize.saturating_sub(usize::from(self.close_code_bytes))) {
            let key = mask[usize::from(self.close_code_bytes) % 4];
            self.close_code = self.close_code << 8 | u16::from(byte ^ key);
            self.close_code_bytes += 1;
        }
    }

    /// Consumes bytes, at most to the end of the frame header or of the payload. `bytes` is not empty.
    fn consume(&mut self, bytes: &[u8]) -> usize {
        if self.payload_left > 0 {
            let available = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let consumed = available.min(self.payload_left);
            self.payload_left -= consumed;
            let consumed = usize::try_from(consumed).unwrap_or(bytes.len());
            if self.closed {
                self.read_close_code(&bytes[..consumed]);
            }
            return consumed;
        }
        let length = usize::from(self.header_length);
        let missing = header_size(&self.header[..length]).saturating_sub(length).clamp(1, Self::MAX_HEADER - length);
        let consumed = missing.min(bytes.len());
        self.header[length..length + consumed].copy_from_slice(&bytes[..consumed]);
        let length = length + consumed;
        let header = &self.header[..length];
        if length >= 2 && length == header_size(header) {
            self.payload_left = payload_size(header);
            if self.closed && self.close_code_bytes < 2 {
                // The close frame had no code, and what follows it is none.
                (self.close_code, self.close_code_bytes) = (NO_CODE, 2);
            }
            self.closed |= header[0] & 0x0f == CLOSE;
            self.header_length = 0;
        } else {
            self.header_length = u8::try_from(length).unwrap_or(0);
        }
        consumed
    }
}

/// The length of a frame header, as far as its first bytes determine it.
fn header_size(header: &[u8]) -> usize {
    let Some(second) = header.get(1) else { return 2 };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    match second & 0x7f {
        126 => 4 + mask,
        127 => 10 + mask,
        _ => 2 + mask,
    }
}

/// The payload length in a complete frame header.
fn payload_size(header: &[u8]) -> u64 {
    let big_endian = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    match header.get(1).map(|second| second & 0x7f) {
        Some(126) => big_endian(&header[2..4]),
        Some(127) => big_endian(&header[2..10]),
        Some(short) => u64::from(short),
        None => 0,
    }
}

/// An unmasked close frame, as servers send it. A reason beyond 123 bytes is cut.
pub fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    let length = u8::try_from(2 + reason.len()).unwrap_or(125).min(125);
    let mut frame = vec![0x80 | CLOSE, length];
    frame.extend_from_slice(&code.to_be_bytes());
    frame.extend(reason.bytes().take(usize::from(length) - 2));
    frame
}

/// A close frame as clients send it: masked, with a key of zeros, because it holds nothing secret.
pub fn masked_close_frame(code: u16, reason: &str) -> Vec<u8> {
    let mut frame = close_frame(code, reason);
    frame[1] |= 0x80;
    frame.splice(2..2, [0; 4]);
    frame
}

#[cfg(test)]
mod tests;

//! Where WebSocket frames begin and end (RFC 6455, section 5.2), so that a close frame of ours lands
//! between two of them. Payloads are counted, never looked at.

/// The opcode of a close frame.
const CLOSE: u8 = 0x8;

/// Follows one direction of a connection, whatever pieces it comes in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameTracker {
    /// Header bytes of the frame so far.
    header: [u8; Self::LONGEST_HEADER],
    header_length: u8,
    /// Payload bytes of the frame still to come.
    payload_left: u64,
    closed: bool,
}

impl FrameTracker {
    /// Two bytes, eight of length, four of mask.
    const LONGEST_HEADER: usize = 14;

    /// Follows these bytes.
    pub fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let step = self.step(bytes);
            bytes = &bytes[step..];
        }
    }

    /// Follows bytes up to the next boundary and says how many those were; all of them if there is none.
    pub fn follow_to_boundary(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.at_boundary() {
            taken += self.step(&bytes[taken..]);
        }
        taken
    }

    /// Whether a frame could begin here.
    pub fn at_boundary(&self) -> bool {
        self.header_length == 0 && self.payload_left == 0
    }

    /// Whether a close frame has gone by: after it nothing may follow.
    pub fn has_closed(&self) -> bool {
        self.closed
    }

    /// Takes the next piece, at most to the end of the header or of the payload. `bytes` is not empty.
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.payload_left > 0 {
            let available = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let taken = available.min(self.payload_left);
            self.payload_left -= taken;
            return usize::try_from(taken).unwrap_or(bytes.len());
        }
        let length = usize::from(self.header_length);
        let wanted = header_size(&self.header[..length]).saturating_sub(length).clamp(1, Self::LONGEST_HEADER - length);
        let taken = wanted.min(bytes.len());
        self.header[length..length + taken].copy_from_slice(&bytes[..taken]);
        let length = length + taken;
        let header = &self.header[..length];
        if length >= 2 && length == header_size(header) {
            self.payload_left = payload_size(header);
            self.closed |= header[0] & 0x0f == CLOSE;
            self.header_length = 0;
        } else {
            self.header_length = u8::try_from(length).unwrap_or(0);
        }
        taken
    }
}

/// How long a header is, as far as its first bytes tell.
fn header_size(header: &[u8]) -> usize {
    let Some(second) = header.get(1) else { return 2 };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    match second & 0x7f {
        126 => 4 + mask,
        127 => 10 + mask,
        _ => 2 + mask,
    }
}

/// How many bytes follow a whole header.
fn payload_size(header: &[u8]) -> u64 {
    let big_endian = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    match header.get(1).map(|second| second & 0x7f) {
        Some(126) => big_endian(&header[2..4]),
        Some(127) => big_endian(&header[2..10]),
        Some(short) => u64::from(short),
        None => 0,
    }
}

/// A close frame as a server sends it. The reason is short ASCII of ours.
pub fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    let length = u8::try_from(2 + reason.len()).unwrap_or(125).min(125);
    let mut frame = vec![0x80 | CLOSE, length];
    frame.extend_from_slice(&code.to_be_bytes());
    frame.extend(reason.bytes().take(usize::from(length) - 2));
    frame
}

/// The same as a client sends it: masked, with a mask of zeros, since there is nothing to hide.
pub fn masked_close_frame(code: u16, reason: &str) -> Vec<u8> {
    let mut frame = close_frame(code, reason);
    frame[1] |= 0x80;
    frame.splice(2..2, [0; 4]);
    frame
}

#[cfg(test)]
mod tests;

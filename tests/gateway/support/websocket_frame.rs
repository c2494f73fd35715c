//! Encodes and parses WebSocket frames (RFC 6455, section 5.2).

pub const CONTINUATION: u8 = 0x0;
pub const TEXT: u8 = 0x1;
pub const BINARY: u8 = 0x2;
pub const CLOSE: u8 = 0x8;
pub const PING: u8 = 0x9;
pub const PONG: u8 = 0xa;

/// A WebSocket frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The FIN bit.
    pub last: bool,
    pub opcode: u8,
    /// The masking key; only clients mask.
    pub mask: Option<[u8; 4]>,
    /// The payload, unmasked.
    pub payload: Vec<u8>,
}

impl Frame {
    /// An unmasked single-frame message, as a server sends it.
    pub fn new(opcode: u8, payload: &[u8]) -> Frame {
        Frame { last: true, opcode, mask: None, payload: payload.to_vec() }
    }

    /// A close frame with a code.
    pub fn close(code: u16) -> Frame {
        Frame::new(CLOSE, &code.to_be_bytes())
    }

    /// The same frame masked, as a client sends it.
    pub fn masked(self) -> Frame {
        Frame { mask: Some([0x37, 0xfa, 0x21, 0x3d]), ..self }
    }

    /// The same frame without FIN.
    pub fn unfinished(self) -> Frame {
        Frame { last: false, ..self }
    }

    /// The status code of a close frame.
    pub fn close_code(&self) -> Option<u16> {
        let code = self.payload.get(..2)?.try_into().ok()?;
        (self.opcode == CLOSE).then(|| u16::from_be_bytes(code))
    }

    /// The encoded frame.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.last) << 7 | self.opcode];
        let masked = u8::from(self.mask.is_some()) << 7;
        match self.payload.len() {
            short @ 0..=125 => bytes.push(masked | short as u8),
            medium @ 126..=0xffff => {
                bytes.push(masked | 126);
                bytes.extend_from_slice(&(medium as u16).to_be_bytes());
            }
            long => {
                bytes.push(masked | 127);
                bytes.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(self.mask.as_ref().map_or(&[][..], |mask| mask));
        let mask = self.mask.unwrap_or_default();
        bytes.extend(self.payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    /// Parses the first frame and returns it with its encoded length; `None` if it is incomplete.
    pub fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
        let (&first, &second) = (bytes.first()?, bytes.get(1)?);
        let (length, mut at) = match second & 0x7f {
            126 => (u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?) as usize, 4),
            127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize, 10),
            short => (short as usize, 2),
        };
        let mask: Option<[u8; 4]> = match second & 0x80 {
            0 => None,
            _ => Some(bytes.get(at..at + 4)?.try_into().ok()?),
        };
        at += mask.map_or(0, |mask| mask.len());
        let payload = bytes.get(at..at + length)?;
        let payload = match mask {
            // Copied at once: byte by byte, the test would be slower than the gateway that it measures.
            None => payload.to_vec(),
            Some(key) => payload.iter().zip(key.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect(),
        };
        Some((Frame { last: first & 0x80 != 0, opcode: first & 0x0f, mask, payload }, at + length))
    }
}

//! Finds the frames in the bytes of one direction.

/// The length of a frame header.
const HEADER: usize = 9;

/// Frame types (RFC 9113, section 6).
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const GO_AWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
}

const END_STREAM: u8 = 1;

/// A frame header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: usize,
    pub(super) kind: u8,
    flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    fn parse(bytes: [u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, d, e, f, g] = bytes;
        let stream = u32::from_be_bytes([d & 0x7f, e, f, g]);
        Self { length: u32::from_be_bytes([0, a, b, c]) as usize, kind, flags, stream }
    }

    /// Whether the sender ends the stream with it; of DATA and HEADERS.
    pub(super) fn ends_stream(&self) -> bool {
        self.flags & END_STREAM != 0
    }

    /// Whether it carries neither a request nor a part of a body.
    pub(super) fn is_overhead(&self) -> bool {
        match self.kind {
            kind::HEADERS => false,
            kind::DATA => self.length == 0 && !self.ends_stream(),
            _ => true,
        }
    }
}

/// What is found in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameEvent {
    Begin(FrameHeader),
    Payload { frame: FrameHeader, bytes: usize },
    End(FrameHeader),
}

/// Where in its frames a direction is.
#[derive(Debug, Default)]
pub(super) struct FrameScanner {
    header: [u8; HEADER],
    header_length: usize,
    /// The frame whose payload is passing.
    frame: Option<FrameHeader>,
    payload_left: usize,
    /// The last four bytes of the payload of a WINDOW_UPDATE.
    increment: u32,
}

impl FrameScanner {
    pub(super) fn is_between_frames(&self) -> bool {
        self.header_length == 0 && self.frame.is_none()
    }

    /// The stream whose frame is incomplete.
    pub(super) fn partial_stream(&self) -> Option<u32> {
        self.frame.map(|frame| frame.stream)
    }

    /// The increment of the window update that has ended.
    pub(super) fn increment(&self) -> u32 {
        self.increment & 0x7fff_ffff
    }

    /// The next event and the bytes behind it; None if the bytes hold no further one.
    pub(super) fn next<'a>(&mut self, bytes: &'a [u8]) -> Option<(FrameEvent, &'a [u8])> {
        match self.frame {
            None => self.next_header(bytes),
            Some(frame) if self.payload_left == 0 => {
                self.frame = None;
                Some((FrameEvent::End(frame), bytes))
            }
            Some(frame) => {
                let (payload, rest) = bytes.split_at(self.payload_left.min(bytes.len()));
                if payload.is_empty() {
                    return None;
                }
                self.payload_left -= payload.len();
                if frame.kind == kind::WINDOW_UPDATE {
                    self.increment = payload.iter().fold(self.increment, |sum, byte| sum << 8 | u32::from(*byte));
                }
                Some((FrameEvent::Payload { frame, bytes: payload.len() }, rest))
            }
        }
    }

    fn next_header<'a>(&mut self, bytes: &'a [u8]) -> Option<(FrameEvent, &'a [u8])> {
        let (part, rest) = bytes.split_at((HEADER - self.header_length).min(bytes.len()));
        self.header[self.header_length..self.header_length + part.len()].copy_from_slice(part);
        self.header_length += part.len();
        if self.header_length < HEADER {
            return None;
        }
        self.header_length = 0;
        let frame = FrameHeader::parse(self.header);
        self.frame = Some(frame);
        self.payload_left = frame.length;
        self.increment = 0;
        Some((FrameEvent::Begin(frame), rest))
    }
}

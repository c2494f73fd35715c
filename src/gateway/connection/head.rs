//! The raw bytes of a request head: where it ends, and how a head that Pingora cannot parse is refused. Judging a
//! parsed head is left to the pipeline.

use std::sync::LazyLock;
use std::time::Duration;

use memchr::memmem::Finder;

use crate::error::{BadRequest, Error};

/// Limits on request heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadLimits {
    /// The time for a whole head, and for the first byte on a new connection.
    pub(crate) deadline: Duration,
    /// The time between two requests.
    pub(crate) idle: Duration,
    pub(crate) bytes: usize,
    /// The length of the request target.
    pub(crate) target: usize,
    /// The number of header lines.
    pub(crate) lines: usize,
}

/// The method and the version are short, so a longer request line has a target that is too long.
const METHOD_AND_VERSION: usize = 64;

/// A head as the client sent it, and the bytes that were read together with it.
#[derive(Debug, Default)]
pub(super) struct HeadBuffer {
    bytes: Vec<u8>,
    /// The offset behind the empty line.
    end: Option<usize>,
}

impl HeadBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        static EMPTY_LINE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));
        // The empty line may have begun at the end of the previous read.
        let from = self.bytes.len().saturating_sub(3);
        self.bytes.extend_from_slice(bytes);
        if self.end.is_none() {
            self.end = EMPTY_LINE.find(&self.bytes[from..]).map(|offset| from + offset + 4);
        }
    }

    /// Whether an unfinished head is twice as long as allowed. A slightly longer one is left to the pipeline, which
    /// gives a more precise error, and part of a body may have been read with it.
    pub(super) fn exceeds(&self, limits: &HeadLimits) -> bool {
        self.bytes.len() > limits.bytes * 2 && self.end.is_none()
    }

    pub(super) fn head(&self) -> &[u8] {
        &self.bytes[..self.end.unwrap_or(self.bytes.len())]
    }

    /// The part of the body that was read together with the head.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[self.end.unwrap_or(self.bytes.len())..]
    }

    /// Removes and returns the part of the body that was read together with the head.
    pub(super) fn take_body(&mut self) -> Vec<u8> {
        self.bytes.split_off(self.end.unwrap_or(self.bytes.len()))
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.end = None;
    }

    pub(super) fn shrink_to(&mut self, capacity: usize) {
        self.bytes.shrink_to(capacity);
    }

    /// Why Pingora cannot parse the head: target too long, head too large, or not HTTP.
    pub(super) fn error(&self, limits: &HeadLimits) -> Error {
        let lines = memchr::memchr_iter(b'\n', &self.bytes).count();
        let first_line = memchr::memchr(b'\n', &self.bytes).unwrap_or(self.bytes.len());
        if first_line > limits.target + METHOD_AND_VERSION {
            Error::TargetTooLong
        } else if lines > limits.lines || self.bytes.len() > limits.bytes {
            Error::HeadTooLarge
        } else {
            BadRequest::Head.into()
        }
    }
}

#[cfg(test)]
mod tests;

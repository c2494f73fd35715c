//! The raw bytes of a request head and what was read behind it: where the head ends, what the lane has been given, and how
//! a head that Pingora cannot parse is refused. Judging a parsed head is left to the pipeline.

use std::io;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use memchr::memmem::Finder;
use pingora_core::protocols::Stream;
use tokio::io::ReadBuf;

use super::super::buffer::Buffer;
use super::super::receive::poll_receive;
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

/// A head as the client sent it, and the bytes that were read ahead: the body's first ones, or the next request's.
#[derive(Debug, Default)]
pub(super) struct HeadBuffer {
    bytes: Buffer,
    /// The offset behind the empty line.
    end: Option<usize>,
    /// How many bytes the lane has been given.
    given: usize,
    /// Whether an empty line before the request line was removed. Only one is: looking for the end of any number of them would
    /// take quadratic time, and would let a client keep its connection without a request.
    has_skipped_line: bool,
}

fn find_empty_line(bytes: &[u8]) -> Option<usize> {
    static EMPTY_LINE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\r\n\r\n"));
    EMPTY_LINE.find(bytes).map(|offset| offset + 4)
}

impl HeadBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads more of the head, and of what follows it. Returns the number of bytes; 0 is the end of the stream.
    pub(super) fn poll_read(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let before = self.bytes.len();
        let count = ready!(poll_receive(stream, &mut self.bytes, cx))?;
        self.note_read(before);
        Poll::Ready(Ok(count))
    }

    /// Looks for the end of the head behind the first `before` bytes, which were there before the last read.
    fn note_read(&mut self, before: usize) {
        // The empty line may have begun at the end of the previous read.
        let from = if self.skip_empty_line() { 0 } else { before.saturating_sub(3) };
        if self.end.is_none() {
            self.end = self.find_end(from);
        }
    }

    /// Removes an empty line before the request line, once (RFC 9112, section 2.2: clients send one behind a body).
    fn skip_empty_line(&mut self) -> bool {
        if self.has_skipped_line || self.end.is_some() || !self.bytes.starts_with(b"\r\n") {
            return false;
        }
        self.has_skipped_line = true;
        self.bytes.drain(..2);
        true
    }

    /// Looks for the end of the head, behind `from`. A second empty line before the request line is a head by itself, which
    /// Pingora cannot parse.
    fn find_end(&self, from: usize) -> Option<usize> {
        match self.bytes.starts_with(b"\r\n") {
            true => Some(2),
            false => find_empty_line(&self.bytes[from..]).map(|offset| from + offset),
        }
    }

    /// Whether the head has been read to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    /// Whether Pingora has been given a whole head. If it reads on, the head was nothing but empty lines.
    pub(super) fn is_given(&self) -> bool {
        self.end == Some(self.given)
    }

    /// Gives Pingora as much of the head as it takes.
    pub(super) fn give_head(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = &self.head()[self.given..];
        let rest = &rest[..rest.len().min(buffer.remaining())];
        buffer.put_slice(rest);
        self.given += rest.len();
    }

    /// The bytes that were read ahead and that the lane has not been given.
    pub(super) fn read_ahead(&self) -> &[u8] {
        &self.bytes[self.given..]
    }

    /// Keeps bytes that belong to the next request.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Marks bytes that were read ahead as given to the lane.
    pub(super) fn mark_given(&mut self, count: usize) {
        self.given += count;
    }

    /// Removes and returns the bytes that were read ahead.
    pub(super) fn take_read_ahead(&mut self) -> Buffer {
        self.bytes.split_off(self.given)
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

    /// Removes and returns the head; what was read ahead stays.
    pub(super) fn take_head(&mut self) -> Buffer {
        let read_ahead = self.bytes.split_off(self.end.unwrap_or(self.bytes.len()));
        (self.end, self.given) = (None, 0);
        std::mem::replace(&mut self.bytes, read_ahead)
    }

    /// Puts a head back before what was read ahead.
    pub(super) fn return_head(&mut self, mut head: Buffer) {
        (self.end, self.given) = (Some(head.len()), 0);
        head.extend(&self.bytes);
        self.bytes = head;
    }

    /// Begins the next head with the bytes that were read ahead.
    pub(super) fn begin_next(&mut self) {
        if self.given > 0 {
            self.bytes = self.take_read_ahead();
        }
        (self.given, self.end, self.has_skipped_line) = (0, None, false);
        self.skip_empty_line();
        self.end = self.find_end(0);
    }

    /// Why Pingora cannot parse the head: target too long, head too large, another version of HTTP, a user in `Host`, or not HTTP.
    pub(super) fn error(&self, limits: &HeadLimits) -> Error {
        let head = self.head();
        let lines = memchr::memchr_iter(b'\n', head).count();
        let first_line = &head[..memchr::memchr(b'\n', head).unwrap_or(head.len())];
        let method = memchr::memchr(b' ', first_line).unwrap_or(first_line.len());
        if first_line.len() > limits.target + METHOD_AND_VERSION && method <= METHOD_AND_VERSION {
            Error::TargetTooLong
        } else if lines > limits.lines || head.len() > limits.bytes {
            Error::HeadTooLarge
        } else if names_other_version(first_line) {
            BadRequest::Version.into()
        } else if names_user(head) {
            BadRequest::Header("Host").into()
        } else {
            BadRequest::Head.into()
        }
    }
}

/// The beginning of a `Host` line.
const HOST: &[u8] = b"host:";

/// Whether a request line ends with a version of HTTP other than 1.0 and 1.1.
fn names_other_version(line: &[u8]) -> bool {
    let version =
        line.trim_ascii_end().rsplit(|byte| *byte == b' ').next().and_then(|word| word.strip_prefix(b"HTTP/"));
    matches!(version, Some([major, b'.', minor])
        if major.is_ascii_digit() && minor.is_ascii_digit() && !matches!((major, minor), (b'1', b'0' | b'1')))
}

/// Whether a `Host` line has a user before the host, as in `user@host`.
fn names_user(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n').any(|line| {
        let name = line.get(..HOST.len()).unwrap_or_default();
        name.eq_ignore_ascii_case(HOST) && line.contains(&b'@')
    })
}

#[cfg(test)]
mod tests;

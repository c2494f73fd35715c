//! What a response over HTTP/1.1 says about the client's connection: of the fast lane, and of a connection that refuses by itself.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use pingora_core::protocols::http::date::get_cached_date;

use crate::domain::header_line::write_line;

/// How long a `Date` line is reused. For as long it may still show the second before.
const DATE_AGE: Duration = Duration::from_millis(100);

thread_local! {
    static DATE: RefCell<DateLine> = const { RefCell::new(DateLine { line: Vec::new(), written: None }) };
}

/// The `Date` line of this thread. The wall clock is read only when the line is old; its age comes from a time that was read anyway.
struct DateLine {
    line: Vec<u8>,
    written: Option<Instant>,
}

impl DateLine {
    fn line(&mut self, now: Instant) -> &[u8] {
        if self.written.is_none_or(|written| now.saturating_duration_since(written) >= DATE_AGE) {
            self.line.clear();
            write_line(&mut self.line, "date", get_cached_date().as_bytes());
            self.written = Some(now);
        }
        &self.line
    }
}

/// What a response says about the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientConnection {
    /// It stays open for the next request.
    KeepAlive,
    /// It is closed after the response.
    Close,
}

impl ClientConnection {
    /// Adds the header lines `Date` and `Connection`, which every final response has. `now` is the present time.
    pub(super) fn write_lines(self, now: Instant, out: &mut Vec<u8>) {
        DATE.with_borrow_mut(|date| out.extend_from_slice(date.line(now)));
        let value: &[u8] = match self {
            Self::KeepAlive => b"keep-alive",
            Self::Close => b"close",
        };
        write_line(out, "connection", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_line_is_written_again_once_it_is_old() {
        let written = Instant::now();
        let mut date = DateLine { line: b"earlier".to_vec(), written: Some(written) };
        assert_eq!(date.line(written + DATE_AGE - Duration::from_millis(1)), b"earlier");
        let line = String::from_utf8(date.line(written + DATE_AGE).to_vec()).unwrap();
        assert!(line.starts_with("date: ") && line.ends_with(" GMT\r\n"), "{line}");
    }
}

//! What a response over HTTP/1.1 says about the client's connection: of the fast lane, and of a connection that refuses by itself.

use pingora_core::protocols::http::date::get_cached_date;

use crate::domain::header_line::write_line;

/// What a response says about the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientConnection {
    /// It stays open for the next request.
    KeepAlive,
    /// It is closed after the response.
    Close,
}

impl ClientConnection {
    /// Writes `Date` and `Connection`, which every final response has.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        write_line(out, "date", get_cached_date().as_bytes());
        let value: &[u8] = match self {
            Self::KeepAlive => b"keep-alive",
            Self::Close => b"close",
        };
        write_line(out, "connection", value);
    }
}

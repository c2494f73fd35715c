//! What the head of an upstream's response says about its body and the connection, for every lane. A head whose body could have two
//! lengths is an error, never repaired. Line ends without a CR and names such as `Content_Length`, which are refused in requests, are not:
//! the gateway writes another head for the client, so that no reader behind it sees them otherwise than it did.

use http::{StatusCode, Version};

use super::chunks::ChunkValidator;
use crate::domain::header_name::is;

/// The most header lines of a response.
const MOST_LINES: usize = 256;

/// The most bytes of a response's head.
pub(super) const MOST_BYTES: usize = 256 * 1024;

/// Why a response cannot be relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidResponse(pub(super) &'static str);

/// What is left of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseBody {
    /// So many bytes.
    Length(u64),
    Chunked(ChunkValidator),
    /// Everything until the upstream closes its connection.
    UntilClose,
}

impl ResponseBody {
    pub(super) const COMPLETE: Self = Self::Length(0);

    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::UntilClose => false,
        }
    }
}

/// The head of a response, as it was received.
pub(super) struct ReceivedHead<'a> {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    /// Empty if the upstream sent none.
    pub(super) reason: &'a str,
    pub(super) lines: &'a [httparse::Header<'a>],
    pub(super) framing: ResponseFraming,
    /// The length of the head; the body begins behind it.
    pub(super) length: usize,
}

/// Parses the head of a response and passes it to `read`; `None` if it has not arrived as a whole.
pub(super) fn parse_head<T>(
    bytes: &[u8],
    read: impl FnOnce(ReceivedHead<'_>) -> Result<T, InvalidResponse>,
) -> Result<Option<T>, InvalidResponse> {
    let mut lines = [const { std::mem::MaybeUninit::uninit() }; MOST_LINES];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut lines);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() > MOST_BYTES => {
            return Err(InvalidResponse("the head of the response is too large"));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(InvalidResponse("the head of the response is malformed")),
    };
    let code = response.code.unwrap_or_default();
    read(ReceivedHead {
        status: StatusCode::from_u16(code).map_err(|_| InvalidResponse("the status is invalid"))?,
        version: if response.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 },
        reason: response.reason.unwrap_or_default(),
        framing: ResponseFraming::of(response.headers)?,
        lines: response.headers,
        length,
    })
    .map(Some)
}

/// What the headers of a response say about its body and the connection.
#[derive(Debug, Default)]
pub(super) struct ResponseFraming {
    length: Option<u64>,
    is_chunked: bool,
    close: bool,
    keep_alive: bool,
    /// Whether `Connection` names a header.
    pub(super) nominates: bool,
}

impl ResponseFraming {
    fn of(headers: &[httparse::Header<'_>]) -> Result<Self, InvalidResponse> {
        let mut framing = Self::default();
        for header in headers {
            let name = header.name.as_bytes();
            match name.len() {
                14 if is(name, b"content-length") => {
                    let length = decimal(header.value).ok_or(InvalidResponse("the Content-Length is invalid"))?;
                    if framing.length.replace(length).is_some() {
                        return Err(InvalidResponse("the response has two Content-Length headers"));
                    }
                }
                17 if is(name, b"transfer-encoding") => {
                    if framing.is_chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(InvalidResponse("the Transfer-Encoding is not exactly chunked"));
                    }
                    framing.is_chunked = true;
                }
                10 if is(name, b"connection") => {
                    for option in header.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                        match option {
                            close if is(close, b"close") => framing.close = true,
                            alive if is(alive, b"keep-alive") => framing.keep_alive = true,
                            b"" => {}
                            _ => framing.nominates = true,
                        }
                    }
                }
                _ => {}
            }
        }
        if framing.is_chunked && framing.length.is_some() {
            return Err(InvalidResponse("the response has both Content-Length and Transfer-Encoding"));
        }
        Ok(framing)
    }

    /// The body that follows the head, unless the response is one that never has a body.
    pub(super) fn body(&self) -> ResponseBody {
        match self {
            Self { is_chunked: true, .. } => ResponseBody::Chunked(ChunkValidator::new()),
            Self { length: Some(length), .. } => ResponseBody::Length(*length),
            _ => ResponseBody::UntilClose,
        }
    }

    /// Whether the upstream keeps its connection open after the response.
    pub(super) fn keeps_open(&self, version: Version) -> bool {
        match version {
            // RFC 9112, section 6.1: with Transfer-Encoding in HTTP/1.0 the framing is not to be trusted.
            Version::HTTP_10 => self.keep_alive && !self.is_chunked,
            _ => !self.close,
        }
    }
}

/// A number of decimal digits and nothing else. 18 of them fit into every integer type of 64 bits, here and in what reads the number next.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

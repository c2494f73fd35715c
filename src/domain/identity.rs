//! The identity headers for upstreams, encoded once and reused for the requests of a session.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::session::Session;

/// The prefix of the gateway's own headers.
pub const PREFIX: &str = "x-deskgate-";

/// The header that carries the identity assertion.
pub const ASSERTION: HeaderName = HeaderName::from_static("x-deskgate-assertion");

/// The header that carries the scope that the matrix granted; depends on the rule.
pub const SCOPE: HeaderName = HeaderName::from_static("x-deskgate-scope");

const EMPLOYEE_ID: HeaderName = HeaderName::from_static("x-deskgate-employee-id");
const NAME: HeaderName = HeaderName::from_static("x-deskgate-name");
const CORP_ID: HeaderName = HeaderName::from_static("x-deskgate-corp-id");
const DEPARTMENT: HeaderName = HeaderName::from_static("x-deskgate-department");
const ROLES: HeaderName = HeaderName::from_static("x-deskgate-roles");
const CURRENT_ROLE: HeaderName = HeaderName::from_static("x-deskgate-current-role");
const LOGIN_SOURCE: HeaderName = HeaderName::from_static("x-deskgate-login-source");
const SESSION_ID: HeaderName = HeaderName::from_static("x-deskgate-session-id");

/// The characters that are percent-encoded in a header value: controls, spaces and `%` itself; non-ASCII always is. A comma
/// stays, because role names contain none.
const NOT_PLAIN: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// The number of identity headers.
const COUNT: usize = 8;

/// The identity headers in the order of their lines.
const NAMES: [HeaderName; COUNT] =
    [EMPLOYEE_ID, NAME, CORP_ID, DEPARTMENT, ROLES, CURRENT_ROLE, LOGIN_SOURCE, SESSION_ID];

/// Encoded identity headers.
///
/// The values are slices of one block that is valid in an HTTP/1.1 head: an encoded head gets
/// [`IdentityLines::block`], and a header map gets the values. Neither copies bytes. Only the ends of
/// the values are kept: a cache of 200,000 sessions may hold as many of these. The block comes first, because
/// `sessions` keeps what every request reads in one cache line.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct IdentityLines {
    block: Bytes,
    /// Where each value ends in the block.
    ends: [u32; COUNT],
}

impl IdentityLines {
    /// Encodes the headers of a session.
    pub fn of(session: &Session) -> Self {
        let (block, ends) = encode(session);
        Self { block: Bytes::copy_from_slice(&block), ends }
    }

    /// Encodes the headers of a session with its assertion; `None` if that is not a valid header value.
    pub fn with_assertion(session: &Session, assertion: &str) -> Option<Self> {
        HeaderValue::from_str(assertion).ok()?;
        let (mut block, ends) = encode(session);
        for piece in [ASSERTION.as_str(), ": ", assertion, "\r\n"] {
            block.extend_from_slice(piece.as_bytes());
        }
        Some(Self { block: Bytes::copy_from_slice(&block), ends })
    }

    /// The headers as names and values, with the assertion if there is one.
    pub fn lines(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let mut line = 0;
        let ends = self.ends.iter().map(|end| *end as usize).chain([self.block.len().saturating_sub(2)]);
        NAMES.into_iter().chain([ASSERTION]).zip(ends).filter_map(move |(name, end)| {
            // Without an assertion, its line would begin behind the end of the block.
            let start = line + name.as_str().len() + 2;
            line = end + 2;
            // Percent-encoding leaves printable ASCII only, which is always a valid header value.
            let value = HeaderValue::from_maybe_shared(self.block.slice_ref(self.block.get(start..end)?)).ok()?;
            Some((name, value))
        })
    }

    /// The headers as bytes of an HTTP/1.1 head, line ends included; with the assertion if there is one.
    pub fn block(&self) -> &Bytes {
        &self.block
    }
}

/// Encodes the headers of a session; returns where each value ends.
fn encode(session: &Session) -> (Vec<u8>, [u32; COUNT]) {
    let roles: Vec<&str> = session.roles.iter().map(|role| role.as_str()).collect();
    let roles = roles.join(",");
    let texts: [&str; COUNT] = [
        session.employee_id.as_str(),
        &session.name,
        session.corp_id.as_str(),
        &session.department,
        &roles,
        session.current_role.as_str(),
        session.login_source.as_str(),
        session.id.as_str(),
    ];
    let mut block = Vec::with_capacity(2048);
    let mut ends = [0; COUNT];
    for ((name, text), end) in NAMES.iter().zip(texts).zip(&mut ends) {
        block.extend_from_slice(name.as_str().as_bytes());
        block.extend_from_slice(b": ");
        for piece in utf8_percent_encode(text, NOT_PLAIN) {
            block.extend_from_slice(piece.as_bytes());
        }
        // Profiles are far smaller than 4 GiB; a larger one would yield no header.
        *end = u32::try_from(block.len()).unwrap_or(0);
        block.extend_from_slice(b"\r\n");
    }
    (block, ends)
}

/// Whether an upstream could read a header name as one of ours.
///
/// `_` and `.` count as `-`: several upstream frameworks turn all three into one variable name, so
/// `X_Deskgate_Roles` from a client would otherwise arrive as ours.
pub fn is_look_alike(name: &[u8]) -> bool {
    let prefix = PREFIX.as_bytes();
    // Bare `x-deskgate` is removed too: no upstream expects it.
    if name.len() < prefix.len() - 1 {
        return false;
    }
    name.iter().zip(prefix).all(|(&byte, &expected)| folded(byte) == expected)
}

/// One byte of a header name, as lenient upstreams compare it.
pub(super) fn folded(byte: u8) -> u8 {
    match byte {
        b'_' | b'.' => b'-',
        other => other.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests;

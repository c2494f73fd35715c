//! The head of an upstream's response: what it says about the body and the connection, and the head that the client gets instead.
//! What is refused is up to `response_framing`.

use std::time::Instant;

use http::StatusCode;

use super::super::client_connection::ClientConnection;
use super::super::response_framing::{InvalidResponse, ResponseBody, parse_head};
use super::line_places::LinePlaces;
use crate::domain::header_line::write_line;
use crate::domain::header_name::{is, make_lower};
use crate::domain::hop_by_hop::is_hop_by_hop;
use crate::domain::identity::is_look_alike;
use crate::pipeline::Arrival;
use crate::pipeline::head::lists;
use crate::rules::CorsHandling;

/// The head of an upstream's response, as far as relaying it needs.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    /// The length of the head; the body begins behind it.
    pub(super) length: usize,
    pub(super) body: ResponseBody,
    /// Whether the upstream keeps its connection open after the response.
    pub(super) keeps_open: bool,
    lines: LinePlaces,
    /// Where the reason phrase is.
    reason: std::ops::Range<usize>,
    /// Whether a header of the upstream is named by its `Connection`.
    nominates: bool,
}

impl ResponseHead {
    /// Reads a head; `None` if it has not arrived as a whole.
    pub(super) fn read(bytes: &[u8], is_head_request: bool) -> Result<Option<Self>, InvalidResponse> {
        parse_head(bytes, |head| {
            let status = head.status;
            let has_no_body = is_head_request
                || status.is_informational()
                || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
            let body = if has_no_body { ResponseBody::COMPLETE } else { head.framing.body() };
            // It is borrowed from the head, unless it is empty.
            let reason_start = match head.reason {
                "" => 0,
                reason => reason.as_ptr() as usize - bytes.as_ptr() as usize,
            };
            Ok(Self {
                status,
                length: head.length,
                body,
                keeps_open: head.framing.keeps_open(head.version) && body != ResponseBody::UntilClose,
                lines: LinePlaces::of(bytes, head.lines),
                reason: reason_start..reason_start + head.reason.len(),
                nominates: head.framing.nominates,
            })
        })
    }

    /// Writes the client's head: without identity headers, hop-by-hop headers and foreign CORS headers, and with those of the gateway.
    /// The rules are those of `gateway::response` for header maps. `now` is the present time.
    pub(super) fn write(
        &self,
        head: &[u8],
        cors: CorsHandling,
        arrival: &Arrival,
        connection: ClientConnection,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.push(b' ');
        let reason = &head[self.reason.clone()];
        let standard = self.status.canonical_reason().unwrap_or_default();
        out.extend_from_slice(if reason.is_empty() { standard.as_bytes() } else { reason });
        out.extend_from_slice(b"\r\n");
        let has_framing = !self.status.is_informational()
            && !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let mut varies = false;
        self.lines.each(head, &mut |name, value| {
            let is_dropped = match name.first().map_or(0, u8::to_ascii_lowercase) {
                b'a' => cors == CorsHandling::Gateway && starts_with(name, "access-control-"),
                b'c' if is(name, b"content-length") => !has_framing,
                // The gateway's own follows, with `Connection`.
                b'd' => is(name, b"date"),
                b's' => arrival.hsts.is_some() && is(name, b"strict-transport-security"),
                b'x' => is(name, b"x-request-id") || is_look_alike(name),
                b'v' if is(name, b"vary") => {
                    varies |= lists(value, "origin") || lists(value, "*");
                    false
                }
                b'c' | b'h' | b'k' | b'p' | b't' | b'u' => is_hop_by_hop(name),
                _ => false,
            };
            // Without its length the client could not find the end of the body.
            let is_dropped =
                is_dropped || self.nominates && !is(name, b"content-length") && self.is_nominated(head, name);
            if !is_dropped {
                write_lower(out, name, value);
            }
        });
        match self.body {
            ResponseBody::Chunked(_) | ResponseBody::UntilClose => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n")
            }
            ResponseBody::Length(_) => {}
        }
        write_line(out, "x-request-id", arrival.request_id.as_bytes());
        if cors == CorsHandling::Gateway {
            arrival.cross_origin.write_lines(varies, out);
        }
        if let Some(hsts) = &arrival.hsts {
            write_line(out, "strict-transport-security", hsts.as_bytes());
        }
        if !self.status.is_informational() {
            connection.write_lines(now, out);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Whether `Connection` names a header.
    fn is_nominated(&self, head: &[u8], name: &[u8]) -> bool {
        let mut found = false;
        let mut visit = |other: &[u8], value| found |= is(other, b"connection") && lists(value, name);
        self.lines.each(head, &mut visit);
        found
    }
}

/// Writes a header line of the upstream, its name in lower case as in Pingora's lane.
fn write_lower(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let start = out.len();
    write_line(out, name, value);
    make_lower(&mut out[start..start + name.len()]);
}

fn starts_with(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

#[cfg(test)]
mod tests;

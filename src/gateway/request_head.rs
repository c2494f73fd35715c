//! Shows a request that Pingora has parsed to the pipeline, as a borrowed [`RequestHead`] without a copy, and encodes the head of a
//! permitted request of either lane for its upstream. Checking and rewriting it is left to the pipeline.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use pingora_core::protocols::http::ServerSession as Exchange;
use pingora_http::RequestHeader;

use super::Gateway;
use super::buffer::Buffer;
use super::connection;
use super::context::{NO_ADDRESS, RequestContext};
use super::failure::internal_error;
use crate::domain::hop_by_hop::HOP_BY_HOP;
use crate::pipeline::forward;
use crate::pipeline::head::{HeaderLines, HttpVersion, RequestHead, lists};

impl Gateway {
    /// The head of a permitted request for an upstream over HTTP/1.1.
    pub(super) fn upstream_head(
        &self,
        head: &RequestHead<'_>,
        context: &mut RequestContext,
    ) -> pingora_core::Result<Buffer> {
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return Err(internal_error("no permit"));
        };
        let mut out = Buffer::new();
        match forward::write_head(&self.gate, permit, arrival, head, &mut out) {
            Ok(()) => Ok(out),
            Err(error) => {
                context.error = Some(error);
                Err(internal_error("the head cannot be forwarded"))
            }
        }
    }
}

/// The header lines of a request as Pingora keeps them.
pub(super) struct HeaderMapLines<'a>(pub(super) &'a HeaderMap);

impl HeaderLines for HeaderMapLines<'_> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a [u8], &'a [u8])) {
        for (name, value) in self.0 {
            visit(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

/// Whether a request asks for a WebSocket. Its client expects no further response on the connection.
pub(super) fn asks_for_socket(request: &RequestHeader) -> bool {
    let headers = &request.headers;
    request.version == Version::HTTP_11
        && request.method == Method::GET
        && headers.get_all(CONNECTION).iter().any(|value| lists(value.as_bytes(), "upgrade"))
        && headers.get_all(UPGRADE).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && !headers.contains_key(CONTENT_LENGTH)
        && !headers.contains_key(TRANSFER_ENCODING)
}

/// The head of the exchange's request; `lines` are its header lines.
pub(super) fn request_head<'a>(exchange: &'a Exchange, lines: &'a HeaderMapLines<'a>) -> RequestHead<'a> {
    let header = exchange.req_header();
    let version = match header.version {
        http::Version::HTTP_2 => HttpVersion::Http2,
        http::Version::HTTP_11 => HttpVersion::Http11,
        _ => HttpVersion::Http10,
    };
    let authority = header.uri.authority().filter(|_| version == HttpVersion::Http2);
    let peer = exchange.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
    RequestHead {
        method: header.method.as_str(),
        target: header.raw_path(),
        version,
        authority: authority.map(|authority| authority.as_str().as_bytes()),
        lines,
        raw: connection::raw_head(exchange),
        stream_goes_on: exchange.as_http2().is_some_and(|stream| !stream.is_body_empty()),
        peer: peer.unwrap_or(NO_ADDRESS),
        transport: connection::transport(exchange),
    }
}

/// The host that a request names, in `Host` or in the `:authority` of HTTP/2.
pub(super) fn host(header: &RequestHeader) -> Option<&[u8]> {
    let authority = || header.uri.authority().filter(|_| header.version == http::Version::HTTP_2);
    header.headers.get(HOST).map(HeaderValue::as_bytes).or_else(|| Some(authority()?.as_str().as_bytes()))
}

/// Drops Pingora's map of header names in their original case. Pingora copies it with the headers and searches it on
/// every change; header names are case-insensitive, so nothing is lost.
pub(super) fn drop_header_case(request: &mut RequestHeader) {
    let empty = RequestHeader::from(http::Request::new(()).into_parts().0);
    let parts = http::request::Parts::from(std::mem::replace(request, empty));
    *request = RequestHeader::from(parts);
}

/// Removes the hop-by-hop headers and those that `Connection` nominates. `Host`, the framing and a handshake's own headers
/// are never among them.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let nominated: Vec<HeaderName> = values
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse::<HeaderName>().ok())
        .filter(|name| *name != HOST && *name != CONTENT_LENGTH && !name.as_str().starts_with("sec-websocket"))
        .collect();
    for name in nominated {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

use std::net::{IpAddr, Ipv4Addr};

use super::super::super::chunks::ChunkValidator;
use super::*;
use crate::gateway::unknown_arrival;

fn read(text: &str) -> ResponseHead {
    ResponseHead::read(text.as_bytes(), false).expect("a valid head").expect("a complete head")
}

fn written(text: &str, cors: CorsHandling) -> String {
    let arrival = Arrival { client: IpAddr::V4(Ipv4Addr::LOCALHOST), ..unknown_arrival() };
    let mut out = Vec::new();
    read(text).write(text.as_bytes(), cors, &arrival, ClientConnection::KeepAlive, Instant::now(), &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn framing_and_reuse_follow_the_head() {
    let chunked = ResponseBody::Chunked(ChunkValidator::new());
    let table = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", ResponseBody::Length(5), true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunked, true),
        ("HTTP/1.1 200 OK\r\n\r\n", ResponseBody::UntilClose, false),
        ("HTTP/1.1 204 No Content\r\n\r\n", ResponseBody::COMPLETE, true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", ResponseBody::COMPLETE, true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n", ResponseBody::Length(5), false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", ResponseBody::Length(5), false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", ResponseBody::Length(5), true),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n", chunked, false),
    ];
    for (text, body, keeps_open) in table {
        let head = read(text);
        assert_eq!((head.body, head.keeps_open, head.length), (body, keeps_open, text.len()), "{text:?}");
    }
    let head =
        ResponseHead::read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true).expect("valid").expect("complete");
    assert_eq!(head.body, ResponseBody::COMPLETE, "HEAD");
}

#[test]
fn a_head_with_two_meanings_is_refused() {
    for lines in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 5\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "X : y\r\n",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        assert!(ResponseHead::read(text.as_bytes(), false).is_err(), "{lines:?}");
    }
    assert!(matches!(ResponseHead::read(b"HTTP/1.1 200 OK\r\nContent-Le", false), Ok(None)), "not yet complete");
}

#[test]
fn the_client_gets_no_identity_and_no_hop_by_hop_headers() {
    let text = "HTTP/1.0 299 Fine\r\nServer: x\r\nX-Deskgate-Employee-Id: u1\r\nX_Deskgate_Roles: admin\r\nKeep-Alive: timeout=5\r\n\
                Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTrailer: X-T\r\nDate: yesterday\r\nX-Request-Id: theirs\r\n\
                Access-Control-Allow-Origin: *\r\nContent-Length: 0\r\n\r\n";
    let head = written(text, CorsHandling::Gateway);
    assert!(head.starts_with("HTTP/1.1 299 Fine\r\nserver: x\r\ncontent-length: 0\r\nx-request-id: "), "{head}");
    for absent in ["deskgate", "timeout", "x-hop", "x-t", "yesterday", "theirs", "access-control"] {
        assert!(!head.to_lowercase().contains(absent), "{absent}: {head}");
    }
    assert!(head.contains("\r\nconnection: keep-alive\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(written(text, CorsHandling::Upstream).contains("access-control-allow-origin: *"));
}

#[test]
fn the_length_cannot_be_nominated_away() {
    let text = "HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: 5\r\n\r\n";
    assert!(written(text, CorsHandling::Gateway).contains("\r\ncontent-length: 5\r\n"));
}

#[test]
fn a_body_that_ends_with_the_connection_is_sent_in_chunks() {
    assert!(written("HTTP/1.1 200 OK\r\n\r\n", CorsHandling::Gateway).contains("\r\ntransfer-encoding: chunked\r\n"));
}

#[test]
fn a_response_without_content_has_no_framing() {
    let head = written(
        "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"
            .replace("Content-Length: 0\r\n", "")
            .as_str(),
        CorsHandling::Gateway,
    );
    assert!(!head.contains("transfer-encoding") && !head.contains("content-length"), "{head}");
}

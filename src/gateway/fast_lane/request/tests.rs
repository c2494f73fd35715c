use super::*;

fn head(text: &str) -> Result<LaneRequest, Buffer> {
    let mut bytes = Buffer::new();
    bytes.extend(text.as_bytes());
    LaneRequest::read(bytes)
}

#[test]
fn a_plain_head_is_taken() {
    let Ok(request) = head("GET /api/x?a=1 HTTP/1.1\r\nHost: desk\r\nX-One:  two \r\n\r\n") else {
        panic!("not taken")
    };
    assert_eq!((request.method(), request.target(), request.path()), ("GET", &b"/api/x?a=1"[..], &b"/api/x"[..]));
    assert_eq!(request.host(), Some(&b"desk"[..]));
    let mut lines = Vec::new();
    request.each(&mut |name, value| lines.push((name.to_vec(), value.to_vec())));
    assert_eq!(lines, [(b"host".to_vec(), b"desk".to_vec()), (b"x-one".to_vec(), b"two".to_vec())]);
    assert!(!request.wants_close);
}

#[test]
fn a_body_is_announced_by_its_length_or_by_chunks() {
    for (lines, body) in [
        ("", AnnouncedBody::NONE),
        ("Content-Length: 0\r\n", AnnouncedBody::NONE),
        ("content-length: 12\r\n", AnnouncedBody::Length(12)),
        ("Transfer-Encoding: Chunked\r\n", AnnouncedBody::Chunked),
    ] {
        let text = format!("POST / HTTP/1.1\r\nHost: desk\r\n{lines}\r\n");
        assert_eq!(head(&text).ok().map(|request| request.body), Some(body), "{lines}");
    }
}

#[test]
fn a_handshake_is_recognized() {
    for value in ["Upgrade", "keep-alive, Upgrade"] {
        let text = format!("GET /ws HTTP/1.1\r\nHost: desk\r\nConnection: {value}\r\nUpgrade: websocket\r\n\r\n");
        assert_eq!(head(&text).ok().map(|request| request.is_handshake), Some(true), "{value}");
    }
    assert_eq!(head("GET / HTTP/1.1\r\nHost: desk\r\n\r\n").ok().map(|request| request.is_handshake), Some(false));
}

#[test]
fn connection_says_what_follows() {
    for (value, wants_close) in [("close", true), ("Close", true), ("keep-alive", false), ("Keep-Alive", false)] {
        let text = format!("GET / HTTP/1.1\r\nHost: desk\r\nConnection: {value}\r\n\r\n");
        assert_eq!(head(&text).ok().map(|request| request.wants_close), Some(wants_close), "{value}");
    }
}

#[test]
fn what_is_not_fully_understood_is_left_to_the_other_lane() {
    let with = |lines: &str| format!("GET / HTTP/1.1\r\nHost: desk\r\n{lines}\r\n");
    let table = [
        ("HTTP/1.0", "GET / HTTP/1.0\r\nHost: desk\r\n\r\n".to_owned()),
        ("no host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        ("two hosts", with("Host: other\r\n")),
        ("an unknown method", "BREW / HTTP/1.1\r\nHost: desk\r\n\r\n".to_owned()),
        ("a method in lower case", "get / HTTP/1.1\r\nHost: desk\r\n\r\n".to_owned()),
        ("an absolute target", "GET http://desk/ HTTP/1.1\r\nHost: desk\r\n\r\n".to_owned()),
        ("OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: desk\r\n\r\n".to_owned()),
        ("a fragment", "GET /x#y HTTP/1.1\r\nHost: desk\r\n\r\n".to_owned()),
        ("a character that must be encoded", "GET /x`y HTTP/1.1\r\nHost: desk\r\n\r\n".to_owned()),
        ("two spaces", "GET  / HTTP/1.1\r\nHost: desk\r\n\r\n".to_owned()),
        ("an empty line first", "\r\nGET / HTTP/1.1\r\nHost: desk\r\n\r\n".to_owned()),
        ("a bare line feed", "GET / HTTP/1.1\nHost: desk\r\n\r\n".to_owned()),
        ("a bare line feed in the lines", with("X: y\n")),
        ("a space before the colon", with("X : y\r\n")),
        ("a folded line", with("X: y\r\n z\r\n")),
        ("two lengths", with("Content-Length: 1\r\nContent-Length: 1\r\n")),
        ("a list of lengths", with("Content-Length: 1, 1\r\n")),
        ("a length with a sign", with("Content-Length: +1\r\n")),
        ("a length and chunks", with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")),
        ("another coding", with("Transfer-Encoding: gzip, chunked\r\n")),
        ("two codings", with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")),
        ("a look-alike of the length", with("Content_Length: 1\r\n")),
        ("a look-alike of the encoding", with("Transfer_Encoding: chunked\r\n")),
        ("another protocol", with("Connection: upgrade\r\nUpgrade: h2c\r\n")),
        ("half of a handshake", with("Connection: upgrade\r\n")),
        ("the other half", with("Upgrade: websocket\r\n")),
        ("two upgrades", with("Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n")),
        ("a handshake with a body", with("Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n")),
        ("a nominated header", with("Connection: keep-alive, x-one\r\n")),
        ("Connection twice", with("Connection: close\r\nConnection: close\r\n")),
        ("Expect", with("Expect: 100-continue\r\n")),
        ("TE", with("TE: trailers\r\n")),
        ("a further head", with("").repeat(2)),
        ("an incomplete head", "GET / HTTP/1.1\r\nHost: desk\r\n".to_owned()),
    ];
    for (case, text) in table {
        let left = head(&text);
        assert_eq!(
            left.err().as_ref().map(|bytes| bytes.as_slice()),
            Some(text.as_bytes()),
            "{case}: the bytes are as they were"
        );
    }
}

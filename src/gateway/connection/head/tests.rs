use super::*;

impl HeadBuffer {
    /// Adds bytes as a read does.
    fn extend(&mut self, bytes: &[u8]) {
        let before = self.bytes.len();
        self.bytes.extend(bytes);
        self.note_read(before);
    }
}

const LIMITS: HeadLimits =
    HeadLimits { deadline: Duration::from_secs(1), idle: Duration::from_secs(1), bytes: 400, target: 100, lines: 5 };

/// What Pingora is given of a complete head by reads of this size.
fn given(buffer: &mut HeadBuffer, room: usize) -> Vec<u8> {
    let mut given = Vec::new();
    while !buffer.is_given() {
        let mut bytes = vec![0; room];
        let mut read = ReadBuf::new(&mut bytes);
        buffer.give_head(&mut read);
        given.extend_from_slice(read.filled());
    }
    given
}

#[test]
fn the_end_of_the_head_is_found_however_the_reads_are_cut() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody\r\n\r\n";
    for cut in 1..request.len() {
        let mut buffer = HeadBuffer::default();
        for read in request.chunks(cut) {
            buffer.extend(read);
        }
        assert_eq!(buffer.head(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "{cut}");
        assert_eq!(given(&mut buffer, 100), buffer.head(), "{cut}");
        assert_eq!(buffer.body(), b"body\r\n\r\n", "{cut}");
        assert_eq!(buffer.read_ahead(), b"body\r\n\r\n", "{cut}");
        assert_eq!(**buffer.take_read_ahead(), *b"body\r\n\r\n", "{cut}");
        assert!(buffer.body().is_empty(), "{cut}");
    }
}

#[test]
fn a_pipelined_head_is_given_after_the_one_before() {
    let (first, second) = (b"GET /1 HTTP/1.1\r\n\r\n", b"GET /2 HTTP/1.1\r\n\r\n");
    for room in [1, 7, 100] {
        let mut buffer = HeadBuffer::default();
        buffer.extend(&[&first[..], second, b"GET /3"].concat());
        assert_eq!(given(&mut buffer, room), first, "{room}");
        buffer.begin_next();
        assert_eq!(buffer.head(), second);
        assert_eq!(given(&mut buffer, room), second, "{room}");
        assert_eq!(buffer.read_ahead(), b"GET /3", "{room}");
    }
}

#[test]
fn a_head_of_empty_lines_is_given_once() {
    let mut buffer = HeadBuffer::default();
    assert!(!buffer.is_given());
    buffer.extend(b"\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\nrest");
    assert_eq!(given(&mut buffer, 100), b"\r\n");
    assert!(buffer.is_given());
}

#[test]
fn one_empty_line_before_a_request_is_ignored_however_the_reads_are_cut() {
    let (request, next) = (b"GET /1 HTTP/1.1\r\n\r\n", b"GET /2 HTTP/1.1\r\n\r\n");
    let bytes = [b"\r\n", &request[..], b"\r\n", next].concat();
    for cut in 1..bytes.len() {
        let mut buffer = HeadBuffer::default();
        for read in bytes.chunks(cut) {
            buffer.extend(read);
        }
        assert_eq!(given(&mut buffer, 100), request, "{cut}");
        buffer.begin_next();
        assert_eq!(given(&mut buffer, 100), next, "{cut}");
    }
    let mut buffer = HeadBuffer::default();
    buffer.extend(&[b"\r\n\r\n", &request[..]].concat());
    assert_eq!(buffer.head(), b"\r\n", "a second empty line is refused");
}

#[test]
fn an_unparsable_head_is_refused_with_its_reason() {
    let table = [
        ("long method", format!("{} / HTTP/1.1\r\n\r\n", "A".repeat(500)), 1431),
        ("long method without an end", "A".repeat(900), 1431),
        ("no HTTP", "hello\r\n\r\n".to_owned(), 1400),
        ("long target", format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(200)), 1414),
        ("many lines", format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(6)), 1431),
        ("large head", format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(500)), 1431),
    ];
    for (case, head, code) in table {
        let mut buffer = HeadBuffer::default();
        buffer.extend(head.as_bytes());
        assert_eq!(buffer.error(&LIMITS).code().number(), code, "{case}");
    }
}

#[test]
fn another_version_of_http_has_its_own_status() {
    for (version, status) in [
        ("HTTP/1.2", 505),
        ("HTTP/2.0", 505),
        ("HTTP/0.9", 505),
        ("HTTP/1.1", 400),
        ("HTTP/3", 400),
        ("HTTP/1.10", 400),
        ("http/1.2", 400),
        ("ICY/1.2", 400),
    ] {
        let mut buffer = HeadBuffer::default();
        buffer.extend(format!("GET / {version}\r\n\r\n").as_bytes());
        assert_eq!(buffer.error(&LIMITS).status().as_u16(), status, "{version}");
    }
}

#[test]
fn only_an_unfinished_head_exceeds_the_limit() {
    let mut unfinished = HeadBuffer::default();
    unfinished.extend(&[b'a'; 801]);
    assert!(unfinished.exceeds(&LIMITS));
    let mut with_body = HeadBuffer::default();
    with_body.extend(b"POST / HTTP/1.1\r\n\r\n");
    with_body.extend(&[b'a'; 801]);
    assert!(!with_body.exceeds(&LIMITS));
}

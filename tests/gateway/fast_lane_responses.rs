//! Responses of upstreams through both lanes of HTTP/1.1: what the client gets is the same, also of responses that are malformed,
//! ambiguous or cut. `DESKGATE_FUZZ_SECONDS=3600 cargo nextest run generated_responses` goes on for an hour.

use std::collections::BTreeMap;
use std::time::Instant;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::fast_lane::{fuzz_seed, fuzz_time};
use crate::support::*;

/// How many generated responses are compared in every run.
const CASES: usize = 150;

/// One message that the client got.
#[derive(Debug, PartialEq)]
struct Message {
    status_line: String,
    headers: BTreeMap<String, Vec<String>>,
    /// The body without chunk framing. A refusal has another request id each time, so only its code counts.
    body: String,
    end: BodyEnd,
}

#[derive(Debug, PartialEq)]
enum BodyEnd {
    Complete,
    Cut,
}

/// What differs between two responses in any case.
const VARYING: [&str; 2] = ["date", "x-request-id"];

fn split_head(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    Some(bytes.split_at(end))
}

fn decode_chunks(mut bytes: &[u8]) -> (Vec<u8>, BodyEnd) {
    let mut body = Vec::new();
    loop {
        let Some(line) = bytes.windows(2).position(|window| window == b"\r\n") else { return (body, BodyEnd::Cut) };
        let size = String::from_utf8_lossy(&bytes[..line]).split(';').next().unwrap_or_default().to_owned();
        let size = usize::from_str_radix(&size, 16).expect("a chunk size");
        bytes = &bytes[line + 2..];
        if size == 0 {
            return (body, BodyEnd::Complete);
        }
        body.extend_from_slice(&bytes[..size.min(bytes.len())]);
        bytes = bytes.get(size + 2..).unwrap_or_default();
    }
}

/// Reads everything that a client got on a connection with one request.
fn messages(method: &str, mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some((head, rest)) = split_head(bytes) {
        let head = String::from_utf8_lossy(head).into_owned();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap_or_default().to_owned();
        let mut headers = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let name = name.to_ascii_lowercase();
            let value = if VARYING.contains(&&*name) { "…" } else { value.trim() };
            headers.entry(name).or_default().push(value.to_owned());
        }
        let status: u16 = status_line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let length = headers.get("content-length").map(|values| values[0].parse::<usize>().expect("a length"));
        if status < 200 {
            messages.push(Message { status_line, headers, body: String::new(), end: BodyEnd::Complete });
            bytes = rest;
            continue;
        }
        let (body, end) = match length {
            _ if method == "HEAD" || matches!(status, 204 | 304) => (rest.to_vec(), BodyEnd::Complete),
            _ if headers.contains_key("transfer-encoding") => decode_chunks(rest),
            Some(length) if rest.len() >= length => (rest.to_vec(), BodyEnd::Complete),
            _ => (rest.to_vec(), BodyEnd::Cut),
        };
        let text = String::from_utf8_lossy(&body).into_owned();
        let body = match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(refusal) if status == 502 => format!("code {}", refusal["code"]),
            _ => text,
        };
        messages.push(Message { status_line, headers, body, end });
        break;
    }
    messages
}

/// A gateway with the fast lane and one without.
struct Lanes([Gateway; 2]);

impl Lanes {
    async fn start() -> Lanes {
        let on_lane = async |fast_lane| Gateway::setup().set("server.fast_lane", fast_lane).start().await;
        Lanes([on_lane("true").await, on_lane("false").await])
    }

    /// What the client gets from either lane for these bytes of the upstream, which then closes its connection.
    async fn compare(&self, case: &str, bytes: &[u8]) {
        for (line, headers, body) in [
            ("GET /public/x", "", ""),
            ("HEAD /public/x", "", ""),
            ("POST /public/x", "Content-Length: 5\r\n", "hello"),
        ] {
            let mut seen = Vec::new();
            for desk in &self.0 {
                desk.upstream.set_behaviour(Behaviour::RespondAndClose(bytes.to_vec()));
                let mut connection = desk.connect().await;
                let headers = format!("Connection: close\r\n{headers}");
                connection.send(&raw_request(desk, line, &headers, body.as_bytes())).await;
                let method = line.split(' ').next().unwrap_or_default();
                seen.push(messages(method, &connection.until_end().await));
            }
            let sent = String::from_utf8_lossy(bytes);
            assert_eq!(seen[0], seen[1], "{case}, {line}: the fast lane is on the left; the upstream sent\n{sent}");
            assert!(seen[0].last().is_some_and(|last| !last.status_line.starts_with("HTTP/1.1 1")), "{case}, {line}");
        }
    }
}

#[tokio::test]
async fn both_lanes_relay_the_same_responses() {
    let lanes = Lanes::start().await;
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    for (case, bytes) in [
        ("a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_owned()),
        ("no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned()),
        ("chunks", format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")),
        ("a chunk extension", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n".to_owned()),
        ("until the end of the connection", "HTTP/1.1 200 OK\r\n\r\nhello".to_owned()),
        ("HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nhello".to_owned()),
        ("HTTP/1.0 with a length", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_owned()),
        ("HTTP/1.0 with chunks", format!("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")),
        ("204", "HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
        ("204 with a length", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n".to_owned()),
        ("304", "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 5\r\n\r\n".to_owned()),
        ("304 with chunks", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
        ("a redirect", "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_owned()),
        ("a 500", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nfail".to_owned()),
        ("103, then 200", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned()),
        ("100, then 200", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned()),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello".to_owned()),
        ("a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello".to_owned()),
        ("a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello".to_owned()),
        ("a length and chunks", format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")),
        ("gzip, chunked", format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n{chunks}")),
        ("identity", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhello".to_owned()),
        ("hop-by-hop headers", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nTrailer: A\r\nProxy-Authenticate: B\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\r\nok".to_owned()),
        ("a nominated length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Content-Length\r\n\r\nok".to_owned()),
        ("identity headers", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Deskgate-Roles: a\r\nX_Deskgate_Name: b\r\n\r\nok".to_owned()),
        ("repeated headers", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nVary: A\r\nVary: B\r\n\r\nok".to_owned()),
        ("another reason", "HTTP/1.1 200 Fine By Me\r\nContent-Length: 2\r\n\r\nok".to_owned()),
        ("no reason", "HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok".to_owned()),
        ("a status without a name", "HTTP/1.1 299 Odd\r\nContent-Length: 2\r\n\r\nok".to_owned()),
        ("a status that is none", "HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok".to_owned()),
        ("an unrequested upgrade", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".to_owned()),
        ("a folded line", "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 2\r\n\r\nok".to_owned()),
        ("a space before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok".to_owned()),
        ("line feeds", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok".to_owned()),
        ("a byte too many", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!".to_owned()),
        ("a second response", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned()),
        ("a malformed chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n".to_owned()),
        ("a chunk that ends with a line feed", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n".to_owned()),
        ("cut in the body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello".to_owned()),
        ("cut between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_owned()),
        ("cut in the head", "HTTP/1.1 200 OK\r\nContent-Le".to_owned()),
        ("nothing", String::new()),
        ("not HTTP", "hello\r\n\r\n".to_owned()),
    ] {
        lanes.compare(case, bytes.as_bytes()).await;
    }
}

/// A response, well-formed or not, and perhaps cut.
fn responses() -> impl Strategy<Value = Vec<u8>> {
    let version = prop::sample::select(vec!["HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]);
    let status =
        prop::sample::select(vec!["200 OK", "201 Created", "204 No Content", "304 Not Modified", "404 Odd", "503 "]);
    let line = prop::sample::select(vec![
        "Content-Length: 5",
        "Content-Length: 5",
        "Content-Length: 7",
        "Content-Length: 0x5",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: CHUNKED",
        "Transfer-Encoding: identity",
        "Connection: close",
        "Connection: keep-alive, X-Own",
        "Keep-Alive: timeout=1",
        "X-Own: a",
        "x-own:b  ",
        "Vary: Origin",
        "X-Deskgate-Name: a",
        "Content-Type: text/plain",
        "X-Empty:",
        "Bad Name: a",
    ]);
    let body = prop::sample::select(vec![
        "",
        "hello",
        "hello!!",
        "5\r\nhello\r\n0\r\n\r\n",
        "5;a\r\nhello\r\n0\r\n\r\n",
        "5\r\nhel",
    ]);
    let interim = prop::sample::select(vec!["", "", "", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"]);
    let lines = prop::collection::vec(line, 0..4);
    (interim, version, status, lines, body, prop::option::weighted(0.2, 0.0_f64..1.0)).prop_map(
        |(interim, version, status, lines, body, cut)| {
            let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let mut bytes = format!("{interim}{version} {status}\r\n{lines}\r\n{body}").into_bytes();
            if let Some(cut) = cut {
                bytes.truncate((bytes.len() as f64 * cut) as usize);
            }
            bytes
        },
    )
}

#[tokio::test]
async fn both_lanes_relay_the_same_generated_responses() {
    let lanes = Lanes::start().await;
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&fuzz_seed().to_le_bytes());
    let numbers = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), numbers);
    let strategy = responses();
    let started = Instant::now();
    for number in 0.. {
        if number >= CASES && started.elapsed() >= fuzz_time() {
            break;
        }
        let bytes = strategy.new_tree(&mut runner).expect("a response").current();
        lanes.compare(&format!("generated response {number}"), &bytes).await;
    }
}

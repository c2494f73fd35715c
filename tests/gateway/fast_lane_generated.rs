//! Generated requests through both lanes of HTTP/1.1: the client gets the same, and the upstream sees the same.
//!
//! `DESKGATE_FUZZ_SECONDS=3600 cargo nextest run generated_requests` goes on for an hour. A difference names its seed and the bytes.

use std::time::{Duration, Instant};

use crate::fast_lane::{Headers, comparable, fuzz_seed, fuzz_time};
use crate::support::*;

/// How many requests are compared in every run.
const CASES: u64 = 300;

/// How long an answer may take. Longer than the deadline for heads: an incomplete one is answered by then.
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

/// A generator of numbers with a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("small")
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

const METHODS: [&str; 12] =
    ["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW", "get"];

const TARGETS: [&str; 20] = [
    "/public/x",
    "/public/x",
    "/public/x?a=1&b=%20",
    "/api/desk/x",
    "/api/desk/x",
    "/nowhere",
    "/",
    "/public/%7Ex",
    "/public/../x",
    "//public/x",
    "/public/a%2fb",
    "/public/x#f",
    "/api/auth/me",
    "/api/auth/verify",
    "/version",
    "*",
    "http://desk.example/public/x",
    "public/x",
    "/public/\u{e9}",
    "/ws/employee",
];

const LINES: [&str; 52] = [
    "Accept: */*",
    "User-Agent: test",
    "Cookie: a=1; deskgate_x=2; b=3",
    "Cookie: c=4",
    "X-Custom:  spaced  ",
    "X-Empty:",
    "Authorization: Bearer x.y.z",
    "Authorization: Bearer TOKEN",
    "Authorization: Bearer TOKEN",
    "Authorization: Basic eDp5",
    "X-Deskgate-Employee-Id: u9",
    "X_Deskgate_Roles: admin",
    "X-Forwarded-For: 10.0.0.9",
    "Forwarded: for=10.0.0.9",
    "X-Request-Id: chosen",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate: a=b",
    "Origin: https://elsewhere.example",
    "Accept-Language: zh-CN",
    "If-None-Match: *",
    "Range: bytes=0-1",
    "Connection: keep-alive",
    "Connection: close",
    "Connection: X-Custom",
    "Connection: close, Host",
    "Connection: Upgrade",
    "Keep-Alive: timeout=5",
    "TE: trailers",
    "TE: gzip",
    "Trailer: X-T",
    "Proxy-Connection: close",
    "Proxy-Authorization: x",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABk",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Host: other.example",
    "Content-Length: 5",
    "Content-Length: 0",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content_Length: 5",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Transfer_Encoding: chunked",
    "Expect: 100-continue",
    "Expect: nothing",
    "Bad Name: x",
    "No colon",
    " folded: x",
];

/// A request, and whether it is a HEAD.
fn request(seed: u64, desk: &Gateway, token: &str) -> (Vec<u8>, bool) {
    let numbers = &mut Numbers(seed);
    let method = numbers.of(&METHODS);
    let version = if numbers.one_in(12) {
        numbers.of(&["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1"])
    } else {
        "HTTP/1.1"
    };
    let end = if numbers.one_in(25) { "\n" } else { "\r\n" };
    let mut text = String::new();
    if numbers.one_in(25) {
        text.push_str("\r\n");
    }
    text.push_str(&format!("{method} {} {version}{end}", numbers.of(&TARGETS)));
    if !numbers.one_in(20) {
        text.push_str(&format!("Host: {}\r\n", desk.address()));
    }
    for _ in 0..numbers.below(6) {
        let line = numbers.of(&LINES).replace("TOKEN", token);
        let end = if numbers.one_in(40) { "\n" } else { "\r\n" };
        text.push_str(&line);
        text.push_str(end);
    }
    text.push_str(&format!("X-Case: {seed}\r\n"));
    let body: &[u8] = match numbers.below(8) {
        0 => {
            text.push_str("Content-Length: 5\r\n");
            b"hello"
        }
        1 => {
            text.push_str("Transfer-Encoding: chunked\r\n");
            numbers.of::<[u8]>(&[
                b"5\r\nhello\r\n0\r\n\r\n",
                b"2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\n\r\n",
                b"5x\r\nhello\r\n0\r\n\r\n",
                b"5\r\nhelloX\r\n0\r\n\r\n",
                b"0\r\n\r\n",
            ])
        }
        _ => b"",
    };
    text.push_str("\r\n");
    // What each gateway has of its own stays as it is: a changed byte could make it invalid for one of them and not for the other. So
    // does the number of the case, by which its requests are found.
    let own = [desk.address().port().to_string(), token.to_owned(), format!("X-Case: {seed}")];
    let is_own = |at: usize| {
        own.iter().any(|own| text.match_indices(own).any(|(start, _)| (start..start + own.len()).contains(&at)))
    };
    let change = numbers.one_in(10).then(|| {
        let (at, byte) = (numbers.below(text.len() + body.len()), numbers.below(256));
        (!is_own(at)).then(|| (at, u8::try_from(byte).expect("a byte")))
    });
    let mut bytes = [text.as_bytes(), body].concat();
    if let Some((at, byte)) = change.flatten() {
        bytes[at] = byte;
    }
    (bytes, method == "HEAD")
}

/// What differs between two generated requests beside what differs between any two.
const VARYING: [&str; 1] = ["forwarded"];

/// What the client got, and what the upstream saw.
#[derive(Debug, PartialEq)]
struct Observed {
    answer: Option<(u16, u64, Headers)>,
    sent: Vec<(String, String, Headers, Vec<u8>)>,
}

async fn observe(desk: &Gateway, token: &str, seed: u64, bytes: &[u8], is_head: bool) -> Observed {
    desk.upstream.clear_requests();
    let mut connection = desk.connect().await;
    connection.send(bytes).await;
    let answering = async {
        match is_head {
            true => connection.response_to_head().await,
            false => connection.response().await,
        }
    };
    let response = tokio::time::timeout(LONGEST_ANSWER, answering).await.ok().flatten();
    // The upstream records a request that did not arrive in time only when its connection ends, during a later case.
    let is_of_case = |sent: &RecordedRequest| sent.header("x-case").is_some_and(|case| case == seed.to_string());
    let sent = desk.upstream.requests().into_iter().filter(is_of_case);
    Observed {
        answer: response.map(|response| {
            let is_ours = response.body.starts_with(b"{\"code\":");
            (response.status, if is_ours { response.code() } else { 0 }, comparable(&response.headers, &VARYING))
        }),
        sent: sent.map(|sent| (sent.method, sent.target, without_token(&sent.headers, token), sent.body)).collect(),
    }
}

/// What the upstream saw. A changed byte makes another header of `Authorization`, with a token that each gateway has of its own.
fn without_token(headers: &[(String, String)], token: &str) -> Headers {
    let mut compared = comparable(headers, &VARYING);
    for value in compared.values_mut().flatten() {
        *value = value.replace(token, "TOKEN");
    }
    compared
}

async fn on_lane(fast_lane: &str) -> (Gateway, String) {
    let setup = Gateway::setup().set("server.fast_lane", fast_lane).set("limits.head_deadline", "\"1s\"");
    let desk = setup.set("limits.upload_deadline", "\"1s\"").set("limits.invalid_tokens", "1000000").start().await;
    let token = desk.sign_in("u1001").await.token().to_owned();
    (desk, token)
}

#[tokio::test]
async fn generated_requests_get_the_same_on_both_lanes() {
    let ((fast, fast_token), (proxy, proxy_token)) = tokio::join!(on_lane("true"), on_lane("false"));
    let (started, mut differences) = (Instant::now(), Vec::new());
    let first = fuzz_seed();
    for seed in first.. {
        if seed - first >= CASES && started.elapsed() >= fuzz_time() {
            break;
        }
        let (bytes, is_head) = request(seed, &fast, &fast_token);
        let (other, _) = request(seed, &proxy, &proxy_token);
        let (on_fast, on_proxy) = tokio::join!(
            observe(&fast, &fast_token, seed, &bytes, is_head),
            observe(&proxy, &proxy_token, seed, &other, is_head)
        );
        // Of a request that does not arrive in time, the upstream may have seen the beginning.
        let is_late = |observed: &Observed| observed.answer.as_ref().is_some_and(|(status, ..)| *status == 408);
        let are_late = is_late(&on_fast) && is_late(&on_proxy);
        if on_fast.answer != on_proxy.answer || !are_late && on_fast.sent != on_proxy.sent {
            let text = String::from_utf8_lossy(&bytes).replace(&fast_token, "TOKEN");
            differences
                .push(format!("seed {seed}: {text:?}\n  fast lane:      {on_fast:?}\n  Pingora's lane: {on_proxy:?}"));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

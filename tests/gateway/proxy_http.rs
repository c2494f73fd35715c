//! Section 5, plain HTTP: what the client said is what the upstream hears, and what it answers is what the client gets.

use std::time::Duration;

use crate::support::*;

/// A request as bytes; header lines as they are to stand there, each with its line end.
fn request(desk: &Gateway, line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{line} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", desk.address()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Bytes of which no two stretches are alike.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| ((place / 251) ^ (place * 31)) as u8).collect()
}

/// An answer of an upstream.
fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[tokio::test]
async fn method_target_and_body_arrive_as_sent() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for (method, target, body) in [
        ("GET", "/api/desk/a", ""),
        ("GET", "/api/desk/a/", ""),
        ("GET", "/api/desk/a?b=c&d=%2F..%2F&e=//&f=/../&g=\\&h", ""),
        ("GET", "/api/desk/a?b=c?d=e", ""),
        ("GET", "/api/desk/caf%C3%A9/%E6%9E%97?q=%E9%9B%A8", ""),
        ("GET", "/api/desk/a:b@c!$&'()*+,=-._~", ""),
        ("POST", "/api/desk/a", "hello"),
        ("POST", "/api/desk/empty", ""),
        ("PUT", "/api/desk/a", "{\"a\":1}"),
        ("PATCH", "/api/desk/a", "\0\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        ("DELETE", "/api/desk/a", "why"),
        ("DELETE", "/api/desk/a", ""),
        ("OPTIONS", "/api/desk/a", ""),
    ] {
        desk.upstream.forget();
        let answer = alice.send(method, target, &[("X-Own", "kept")], body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{method} {target}: {}", answer.describe());
        let seen = desk.upstream.only_request();
        assert_eq!((seen.method.as_str(), seen.target.as_str()), (method, target));
        assert_eq!(String::from_utf8_lossy(&seen.body), body, "{method} {target}");
        assert_eq!(seen.header("x-own"), Some("kept"), "{method} {target}");
    }
}

#[tokio::test]
async fn the_upstreams_answer_arrives_as_given() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for (status, reason, body) in [
        (200, "OK", "hello"),
        (201, "Created", ""),
        (301, "Moved Permanently", "there"),
        (302, "Found", ""),
        (400, "Bad Request", "not an envelope"),
        (401, "Unauthorized", "the upstream's own business"),
        (403, "Forbidden", "the upstream's own business"),
        (404, "Not Found", "{\"own\":\"error\"}"),
        (418, "I'm a teapot", "short and stout"),
        (500, "Internal Server Error", "oops"),
        (503, "Service Unavailable", "later"),
    ] {
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Length: {}\r\nContent-Type: text/x-own\r\nSet-Cookie: a=1; Path=/\r\n\
             Set-Cookie: b=2; Path=/\r\nLocation: /elsewhere\r\nX-Own: kept\r\n\r\n{body}",
            body.len()
        );
        desk.upstream.behave(Behaviour::Answer(head.into_bytes()));
        for person in [&desk.anyone(), &alice] {
            let answer = person.get("/public/x").await.expect_status(status);
            assert_eq!(answer.text(), body, "{status}");
            assert_eq!(answer.header_all("set-cookie"), ["a=1; Path=/", "b=2; Path=/"], "{status}");
            assert_eq!(answer.header("content-type"), Some("text/x-own"), "{status}");
            assert_eq!(answer.header("location"), Some("/elsewhere"), "{status}");
            assert_eq!(answer.header("x-own"), Some("kept"), "{status}");
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_stay_without() {
    let desk = Gateway::start().await;
    for status in ["204 No Content", "304 Not Modified"] {
        desk.upstream.behave(Behaviour::Answer(format!("HTTP/1.1 {status}\r\nETag: \"a\"\r\n\r\n").into_bytes()));
        let mut connection = desk.connect().await;
        for _ in 0..2 {
            connection.send(&request(&desk, "GET /public/x", "", b"")).await;
            let answer = connection.answer().await.expect("an answer");
            assert_eq!(answer.status.to_string(), status[..3]);
            assert_eq!(answer.header("etag"), Some("\"a\""), "{}", answer.describe());
        }
    }
}

#[tokio::test]
async fn chunked_bodies_pass_both_ways() {
    let desk = Gateway::start().await;
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst,\r\n7\r\n second\r\n0\r\n\r\n";
    desk.upstream.behave(Behaviour::Answer(answer.into()));
    let mut connection = desk.connect().await;
    for _ in 0..2 {
        let body = b"5\r\nhello\r\n1\r\n \r\n00A\r\nworldworld\r\n0\r\n\r\n";
        connection.send(&request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", body)).await;
        let answer = connection.answer().await.expect("an answer");
        assert_eq!(answer.text(), "first, second");
        assert_eq!(desk.upstream.last_request().body, b"hello worldworld");
    }
}

#[tokio::test]
async fn large_bodies_pass_both_ways() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let (up, down) = (pattern(6 << 20), pattern((5 << 20) + 1));
    desk.upstream.behave(Behaviour::Answer(ok("", &down)));
    let answer = alice.post_body("/api/desk/x", "application/octet-stream", &up).await.expect_status(200);
    assert!(answer.body == down, "{} bytes came down", answer.body.len());
    assert!(desk.upstream.last_request().body == up, "{} bytes went up", desk.upstream.last_request().body.len());

    let mut chunks = Vec::new();
    for piece in up.chunks(70_001) {
        chunks.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunks.extend_from_slice(piece);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "PUT /public/x", "Transfer-Encoding: chunked\r\n", &chunks)).await;
    let answer = connection.answer().await.expect("an answer");
    assert!(answer.body == down, "{} bytes came down", answer.body.len());
    assert!(desk.upstream.last_request().body == up, "{} bytes went up", desk.upstream.last_request().body.len());
}

#[tokio::test]
async fn an_answer_without_a_length_lasts_until_the_upstream_closes() {
    let desk = Gateway::start().await;
    let body = pattern(100_000);
    let mut bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
    bytes.extend_from_slice(&body);
    desk.upstream.behave(Behaviour::AnswerAndClose(bytes));
    assert!(desk.anyone().get("/public/x").await.expect_status(200).body == body);
}

#[tokio::test]
async fn bodies_are_streamed_not_collected() {
    let desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "POST /public/x", "Content-Length: 10\r\n", b"begin")).await;

    // The upstream has the first half while the client still holds the second.
    let mut visit = visits.next().await;
    assert_eq!(visit.end.exactly(5).await, b"begin");
    connection.send(b"-rest").await;
    assert_eq!(visit.end.exactly(5).await, b"-rest");

    // And the client has the first half of the answer while the upstream still holds the second.
    let (first, last) = (pattern(200_000), b"last");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", first.len() + last.len());
    visit.end.send(head.as_bytes()).await;
    visit.end.send(&first).await;
    let mut client = End::of(connection);
    client.until(b"\r\n\r\n").await;
    // The end of a piece may wait in a buffer for more to come; its bulk may not.
    client.exactly(first.len() - 16 * 1024).await;
    visit.end.send(last).await;
    assert!(client.exactly(16 * 1024 + last.len()).await.ends_with(last));
}

#[tokio::test]
async fn an_endless_stream_of_events_flows() {
    let desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /public/events", "Accept: text/event-stream\r\n", b"")).await;
    let mut visit = visits.next().await;
    visit.end.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let mut client = End::of(connection);
    for number in 0..20 {
        let event = format!("data: {number}\n\n");
        visit.end.send(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await;
        client.until(event.as_bytes()).await;
    }
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", alice.token());
    let mut connection = desk.connect().await;
    for number in 0..10 {
        let body = format!("body {number}");
        let headers = format!("{bearer}Content-Length: {}\r\n", body.len());
        connection.send(&request(&desk, &format!("POST /api/desk/{number}"), &headers, body.as_bytes())).await;
        let answer = connection.answer().await.unwrap_or_else(|| panic!("the connection was closed after {number}"));
        assert_eq!(answer.json()["body"], body);
    }
    assert!(desk.upstream.connections() <= 2, "{} connections for one after the other", desk.upstream.connections());
}

#[tokio::test]
async fn connections_of_plain_questions_are_kept_too() {
    let desk = Gateway::start().await;
    let mut connection = desk.connect().await;
    for number in 0..10 {
        connection.send(&request(&desk, &format!("GET /public/{number}"), "", b"")).await;
        connection.answer().await.unwrap_or_else(|| panic!("closed after {number}")).expect_status(200);
    }
    assert!(desk.upstream.connections() <= 2, "{} connections for one after the other", desk.upstream.connections());
}

/// A plain question is carried as bytes, everything else as a header map; which of the two must not show.
#[tokio::test]
async fn both_lanes_tell_the_upstream_the_same() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let forged = "X-Deskgate-Roles: admin\r\nX_Deskgate_Name: eve\r\nX-Forwarded-For: 9.9.9.9\r\nForwarded: for=9.9.9.9\r\n\
                  X-Original-URL: /admin\r\nSec-WebSocket-Protocol: bearer.x\r\nX-Request-Id: 12345678\r\n\
                  traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    let usual = "Accept: text/html\r\nAccept-Language: zh-CN\r\nCookie: a=1; b=2\r\nX-Own: one\r\nX-Own: two\r\n\
                 Connection: keep-alive\r\n";
    let bearer = format!("Authorization: Bearer {}\r\n", alice.token());
    for (target, credentials) in [("/api/desk/x?a=b", bearer.as_str()), ("/public/%7Ex", ""), ("/public/x", &bearer)] {
        for headers in [String::new(), usual.to_owned(), forged.to_owned(), format!("{usual}{forged}")] {
            desk.upstream.forget();
            // `TE` concerns one connection only: it is taken out, and with it a question is not plain any more.
            for other_lane in ["", "TE: trailers\r\n"] {
                let lines = format!("{credentials}{headers}{other_lane}");
                desk.raw(&request(&desk, &format!("GET {target}"), &lines, b"")).await.expect("an answer");
            }
            let seen = desk.upstream.received(2).await;
            let told = |seen: &Recorded| {
                let line = |(name, value): &(String, String)| match name.to_ascii_lowercase() {
                    // New for every request but for the trace that the caller began.
                    name if name == "x-request-id" => (name, value.len().to_string()),
                    name if name == "traceparent" => (name, value.contains("4bf92f3577b34da6").to_string()),
                    name => (name, value.clone()),
                };
                let mut lines: Vec<(String, String)> = seen.headers.iter().map(line).collect();
                lines.sort();
                (seen.target.clone(), lines)
            };
            assert_eq!(told(&seen[0]), told(&seen[1]), "{target} {headers:?}");
            assert!(seen[0].headers.len() > 5, "{target}: the request is told about");
        }
    }
}

#[tokio::test]
async fn interim_answers_come_before_the_answer() {
    let desk = Gateway::start().await;
    let both = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n\
                 HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    desk.upstream.behave(Behaviour::Answer(both.to_vec()));
    for lane in ["", "TE: trailers\r\n"] {
        let mut client = End::of(desk.connect().await);
        client.send(&request(&desk, "GET /public/x", lane, b"")).await;
        let heard = client.until(b"\r\n\r\nok").await;
        let heard = String::from_utf8_lossy(&heard);
        let (interim, answer) = heard.split_once("\r\n\r\n").expect("two heads");
        assert!(interim.starts_with("HTTP/1.1 103 ") && interim.contains("/a.css"), "{lane:?}: {heard}");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{lane:?}: {heard}");
    }
}

#[tokio::test]
async fn a_failure_after_an_interim_answer_has_its_code() {
    let desk = Gateway::start().await;
    desk.upstream.behave(Behaviour::AnswerAndClose(b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec()));
    for lane in ["", "TE: trailers\r\n"] {
        let mut client = End::of(desk.connect().await);
        client.send(&request(&desk, "GET /public/x", lane, b"")).await;
        let heard = client.rest_within(PATIENCE).await;
        let heard = String::from_utf8_lossy(&heard);
        assert!(heard.contains("HTTP/1.1 502") && heard.contains("\"code\":1502"), "{lane:?}: {heard}");
    }
}

/// An upstream may close an idle connection at the very moment at which it is used again. Asking twice does no
/// harm then, as the question is a GET and nobody has heard it.
#[tokio::test]
async fn a_question_on_a_connection_that_was_closed_is_asked_again() {
    let desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    let mut client = desk.connect().await;
    client.send(&request(&desk, "GET /public/1", "", b"")).await;
    let mut first = visits.next().await;
    first.end.send(&ok("", b"one")).await;
    assert_eq!(client.answer().await.expect("an answer").text(), "one");
    client.send(&request(&desk, "GET /public/2", "", b"")).await;
    first.end.until(b"/public/2").await;
    drop(first);
    let mut second = visits.next().await;
    assert_eq!(second.request.target, "/public/2");
    second.end.send(&ok("", b"two")).await;
    assert_eq!(client.answer().await.expect("an answer").text(), "two");
}

#[tokio::test]
async fn a_question_whose_answer_broke_off_is_not_asked_again() {
    let desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    let mut client = desk.connect().await;
    client.send(&request(&desk, "GET /public/1", "", b"")).await;
    let mut first = visits.next().await;
    first.end.send(b"HTTP/1.1 20").await;
    drop(first);
    client.answer().await.expect("an answer").expect_code(1502);
    assert!(visits.is_quiet_for(Duration::from_millis(300)).await, "asked again on a new connection");
}

#[tokio::test]
async fn the_upstream_is_let_go_when_its_client_leaves() {
    let desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    for part in ["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"] {
        let mut client = End::of(desk.connect().await);
        client.send(&request(&desk, "GET /public/x", "", b"")).await;
        let mut visit = visits.next().await;
        visit.end.send(part.as_bytes()).await;
        drop(client);
        assert_eq!(visit.end.rest_within(PATIENCE).await, b"", "{part:?}");
    }
    desk.logged(&["the client went away before its answer"]).await;
}

#[tokio::test]
async fn a_connection_is_judged_anew_for_every_request() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", alice.token());
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.answer().await.expect("an answer").expect_status(200);
    connection.send(&request(&desk, "GET /api/desk/x", "", b"")).await;
    connection.answer().await.expect("an answer").expect_bare_challenge();
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.answer().await.expect("an answer").expect_status(200);
    alice.post("/api/auth/logout").await.expect_code(0);
    connection.send(&request(&desk, "GET /api/desk/x", &bearer, b"")).await;
    connection.answer().await.expect("an answer").expect_invalid_token();
}

#[tokio::test]
async fn a_client_that_asks_for_the_end_gets_it() {
    let desk = Gateway::start().await;
    for target in ["/public/x", "/api/ready"] {
        let mut connection = desk.connect().await;
        connection.send(&request(&desk, &format!("GET {target}"), "Connection: close\r\n", b"")).await;
        connection.answer().await.expect("an answer").expect_status(200);
        assert!(connection.closes_within(PATIENCE).await, "{target}");
    }
    let mut connection = desk.connect().await;
    connection.send(format!("GET /public/x HTTP/1.0\r\nHost: {}\r\n\r\n", desk.address()).as_bytes()).await;
    connection.answer().await.expect("an answer").expect_status(200);
    assert!(connection.closes_within(PATIENCE).await, "HTTP/1.0");
}

#[tokio::test]
async fn a_request_of_old_without_a_host_reaches_the_upstream_with_one() {
    let desk = Gateway::start().await;
    let answer = desk.raw(b"GET /public/x HTTP/1.0\r\n\r\n").await.expect("an answer");
    answer.expect_status(200);
    let seen = desk.upstream.only_request();
    assert!(seen.header("host").is_some_and(|host| !host.is_empty()), "{}", String::from_utf8_lossy(&seen.head));
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let bearer = format!("Authorization: Bearer {}\r\n", alice.token());
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "HEAD /api/desk/x", &bearer, b"")).await;
    let answer = connection.answer_to_head().await.expect("an answer").expect_status(200);
    assert!(answer.header("content-length").is_some_and(|length| length != "0"), "{}", answer.describe());
    assert_eq!(desk.upstream.last_request().method, "HEAD");
    // What comes next on the connection is the next answer, and nothing that belonged to the first.
    connection.send(&request(&desk, "GET /api/desk/y", &bearer, b"")).await;
    assert_eq!(connection.answer().await.expect("an answer").json()["target"], "/api/desk/y");

    connection.send(&request(&desk, "HEAD /api/desk/x", "", b"")).await;
    connection.answer_to_head().await.expect("an answer").expect_status(401);
    let mut rest = End::of(connection);
    rest.try_send(&request(&desk, "GET /public/z", "Connection: close\r\n", b"")).await.ok();
    let rest = rest.rest_within(PATIENCE).await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn a_client_that_waits_for_100_is_told_to_go_on() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut visits = Visits::at(&desk.upstream);
    let mut connection = desk.connect().await;
    let headers = format!("Authorization: Bearer {}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", alice.token());
    connection.send(&request(&desk, "POST /api/desk/x", &headers, b"")).await;
    let upstream = async {
        let mut visit = visits.next().await;
        if visit.request.header("expect").is_some() {
            visit.end.send(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        assert_eq!(visit.end.exactly(5).await, b"hello");
        visit.end.send(&ok("", b"done")).await;
        visit
    };
    let client = async {
        connection.answer().await.expect("an answer").expect_status(100);
        connection.send(b"hello").await;
        let answer = connection.answer().await.expect("an answer").expect_status(200);
        assert_eq!(answer.text(), "done");
    };
    tokio::join!(upstream, client);
}

#[tokio::test]
async fn our_own_endpoints_say_100_too() {
    let desk = Gateway::start().await;
    let body = br#"{"token":"a.b.c"}"#;
    let headers =
        format!("Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n", body.len());
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "POST /api/auth/verify", &headers, b"")).await;
    connection.answer().await.expect("an answer").expect_status(100);
    connection.send(body).await;
    let answer = connection.answer().await.expect("an answer").expect_code(0);
    assert_eq!(answer.data()["valid"], false);
}

#[tokio::test]
async fn addresses_take_turns() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    let addresses = format!("[upstreams.helpdesk]\naddresses = [\"{}\", \"{}\"]", one.address(), two.address());
    let desk = Gateway::with(&addresses).await;
    for _ in 0..20 {
        desk.anyone().get("/public/x").await.expect_status(200);
    }
    assert_eq!((one.requests().len(), two.requests().len()), (10, 10));
    for _ in 0..4 {
        desk.anyone().websocket("/ws/public").await.echo("hello").await;
    }
    assert_eq!((one.requests().len(), two.requests().len()), (12, 12), "sockets take turns as well");
}

#[tokio::test]
async fn a_dead_address_is_passed_over() {
    let (dead, live) = (Upstream::start().await, Upstream::start().await);
    dead.refuse().await;
    let addresses = format!("[upstreams.helpdesk]\naddresses = [\"{}\", \"{}\"]", dead.address(), live.address());
    let desk = Gateway::with(&addresses).await;
    for number in 0..10 {
        let answer = desk.anyone().post_body("/public/x", "text/plain", b"once").await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.describe());
        desk.anyone().websocket("/ws/public").await.echo("hello").await;
    }
    assert_eq!(live.requests().len(), 20, "each of them once");
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_1502() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    alice.get("/api/desk/x").await.expect_status(200);
    desk.upstream.refuse().await;
    alice.get("/api/desk/x").await.expect_code(1502);
    alice.post_body("/api/desk/x", "text/plain", b"hello").await.expect_code(1502);
    alice.handshake("/ws/employee").open().await.err().expect("a refusal").expect_code(1502);
    alice.get("/api/auth/me").await.expect_code(0);
    desk.upstream.listen_again().await;
    alice.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn an_upstream_that_speaks_no_http_is_1502() {
    let desk = Gateway::start().await;
    let endless = format!("HTTP/1.1 200 OK\r\nX-Long: {}", "a".repeat(2 << 20));
    for (case, behaviour) in [
        ("it hangs up", Behaviour::HangUp),
        ("it talks nonsense", Behaviour::AnswerAndClose(b"220 mail.example ESMTP\r\n\r\n".to_vec())),
        ("half a head", Behaviour::AnswerAndClose(b"HTTP/1.1 200 OK\r\nContent-Le".to_vec())),
        ("a head without end", Behaviour::AnswerAndClose(endless.into_bytes())),
    ] {
        desk.upstream.behave(behaviour);
        // A POST is not sent twice, whatever happens to the first.
        let answer = desk.anyone().post_body("/public/x", "text/plain", b"hello").await;
        assert_eq!(answer.status, 502, "{case}: {}", answer.describe());
        answer.expect_code(1502);
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_1504() {
    let desk = Gateway::with("[upstreams.helpdesk]\nanswer_timeout = \"300ms\"").await;
    let alice = desk.sign_in("u1001").await;
    desk.upstream.behave(Behaviour::Hang);
    alice.get("/api/desk/x").await.expect_code(1504);
    alice.post_body("/api/desk/x", "text/plain", b"hello").await.expect_code(1504);
    desk.upstream.behave(Behaviour::Echo);
    alice.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_cut_visibly() {
    let desk = Gateway::with("[upstreams.helpdesk]\nanswer_timeout = \"500ms\"").await;
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this".to_vec();
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n".to_vec();
    let half_chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nonly this".to_vec();
    let bad_chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\nxyz\r\n".to_vec();
    for (case, bytes, open) in [
        ("a length that is not reached", &short, false),
        ("chunks without an end", &chunked, false),
        ("half a chunk", &half_chunk, false),
        ("no chunk", &bad_chunk, false),
        ("a length that is never reached", &short, true),
        ("chunks that stop coming", &chunked, true),
    ] {
        desk.upstream.behave(match open {
            true => Behaviour::Answer(bytes.clone()),
            false => Behaviour::AnswerAndClose(bytes.clone()),
        });
        let outcome = desk.anyone().attempt("GET", "/public/x", &[], b"").await;
        assert!(outcome.is_err(), "{case}: a whole answer, {}", outcome.unwrap().describe());
    }
    let mut visits = Visits::at(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /public/x", "", b"")).await;
    let mut visit = visits.next().await;
    visit.end.send(&chunked).await;
    let mut client = End::of(connection);
    client.until(b"only this").await;
    visit.end.reset();
    let rest = client.rest_within(PATIENCE).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a reset is no end: {}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_cut() {
    let desk = Gateway::with("[limits]\nstalled = \"500ms\"").await;
    let mut visits = Visits::at(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /public/x", "", b"")).await;
    let mut visit = visits.next().await;
    // Far more than the kernel keeps for anybody.
    let answer = ok("", &pattern(64 << 20));
    assert!(visit.end.try_send(&answer).await.is_err(), "the upstream got rid of everything");
    let came = End::of(connection).rest_within(PATIENCE).await;
    assert!(came.len() < answer.len(), "all of it was kept for somebody who did not read");
    desk.anyone().get("/api/ready").await.expect_code(0);
}

#[tokio::test]
async fn an_upload_that_breaks_off_never_looks_whole() {
    let desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "POST /public/x", "Content-Length: 100\r\n", b"only this")).await;
    let mut visit = visits.next().await;
    assert_eq!(visit.end.exactly(9).await, b"only this");
    drop(connection);
    assert_eq!(visit.end.rest_within(PATIENCE).await, b"");

    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "POST /public/x", "Transfer-Encoding: chunked\r\n", b"9\r\nonly this\r\n")).await;
    let mut visit = visits.next().await;
    visit.end.until(b"only this\r\n").await;
    drop(connection);
    let rest = visit.end.rest_within(PATIENCE).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn a_second_answer_reaches_nobody() {
    let desk = Gateway::start().await;
    let poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    let mut bytes = ok("", b"honest");
    bytes.extend_from_slice(poison);
    desk.upstream.behave(Behaviour::Answer(bytes));
    for number in 0..20 {
        let answer = desk.anyone().get("/public/x").await.expect_status(200);
        assert_eq!(answer.text(), "honest", "request {number}");
    }
    desk.upstream.behave(Behaviour::Echo);
    for number in 0..20 {
        let target = format!("/public/{number}");
        assert_eq!(desk.anyone().get(&target).await.expect_status(200).json()["target"], target);
    }
}

#[tokio::test]
async fn an_unasked_101_opens_no_tunnel() {
    let desk = Gateway::start().await;
    let mut visits = Visits::at(&desk.upstream);
    let mut connection = desk.connect().await;
    connection.send(&request(&desk, "GET /public/x", "", b"")).await;
    let mut visit = visits.next().await;
    visit.end.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    visit.end.try_send(b"raw bytes").await.ok();
    let answer = connection.answer().await;
    assert!(answer.as_ref().is_none_or(|answer| answer.status == 502), "{}", answer.unwrap().describe());
    let mut client = End::of(connection);
    client.try_send(b"GET /public/smuggled HTTP/1.1\r\nHost: a\r\n\r\n").await.ok();
    let seen = visit.end.rest_within(PATIENCE).await;
    assert!(seen.is_empty(), "through a tunnel: {}", String::from_utf8_lossy(&seen));
}

#[tokio::test]
async fn proxied_answers_carry_our_request_id_once() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    desk.upstream.behave(Behaviour::Answer(ok("X-Request-Id: the-upstreams-own\r\nx-request-id: again\r\n", b"")));
    let answer = alice.get("/api/desk/x").await.expect_status(200);
    let id = answer.header("x-request-id").expect("X-Request-Id");
    assert_ne!(id, "the-upstreams-own");
    assert_eq!(desk.upstream.last_request().header("x-request-id"), Some(id));

    desk.upstream.behave(Behaviour::Echo);
    let socket = alice.websocket("/ws/employee").await;
    let id = socket.answer().header("x-request-id").expect("X-Request-Id on the 101");
    assert_eq!(desk.upstream.last_request().header("x-request-id"), Some(id));
}

#[tokio::test]
async fn a_request_id_is_kept_only_from_trusted_peers_and_only_if_well_formed() {
    let (trusting, wary) = (Gateway::start().await, Gateway::with("[server]\ntrusted_proxies = []").await);
    let long = "a".repeat(5000);
    for (given, kept) in [
        ("0af7651916cd43dd8448eb211c80319c", true),
        ("", false),
        ("two words", false),
        ("a\"b", false),
        ("a{b}", false),
        ("\u{96e8}", false),
        (&long, false),
    ] {
        for (desk, kept) in [(&trusting, kept), (&wary, false)] {
            desk.upstream.forget();
            let answer = desk.anyone().with_header("X-Request-Id", given).get("/public/x").await.expect_status(200);
            let used = answer.header("x-request-id").expect("X-Request-Id");
            assert_eq!(used == given, kept, "{given:.40}");
            assert_eq!(desk.upstream.only_request().header("x-request-id"), Some(used), "{given:.40}");
        }
    }
    let two = [("X-Request-Id", "first"), ("X-Request-Id", "second")];
    let answer = trusting.anyone().send("GET", "/public/x", &two, b"").await.expect_status(200);
    let used = answer.header("x-request-id").expect("X-Request-Id");
    assert_eq!(trusting.upstream.last_request().header("x-request-id"), Some(used));
}

/// Fails unless this is a `traceparent` of W3C's version 00.
#[track_caller]
fn trace_of(seen: &Recorded) -> String {
    let value = seen.header("traceparent").expect("traceparent");
    let parts: Vec<&str> = value.split('-').collect();
    let hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let zero = |text: &str| text.bytes().all(|b| b == b'0');
    assert!(
        matches!(parts[..], ["00", trace, span, flags] if hex(trace, 32) && hex(span, 16) && hex(flags, 2) && !zero(trace) && !zero(span)),
        "{value}"
    );
    value.to_owned()
}

#[tokio::test]
async fn every_request_has_its_place_in_a_trace() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        alice.get("/api/desk/x").await.expect_status(200);
        seen.insert(trace_of(&desk.upstream.last_request())[3..35].to_owned());
        let _socket = alice.websocket("/ws/employee").await;
        seen.insert(trace_of(&desk.upstream.last_request())[3..35].to_owned());
    }
    assert_eq!(seen.len(), 6, "{seen:?}");

    let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    desk.anyone().with_header("traceparent", given).get("/public/x").await.expect_status(200);
    let value = trace_of(&desk.upstream.last_request());
    assert!(value.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "the trace goes on: {value}");
    assert!(!value.contains("b7ad6b7169203331"), "as a span of our own: {value}");

    for bad in [
        "",
        "nonsense",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra",
    ] {
        desk.anyone().with_header("traceparent", bad).get("/public/x").await.expect_status(200);
        trace_of(&desk.upstream.last_request());
    }
    let two = [("traceparent", given), ("traceparent", given)];
    desk.anyone().send("GET", "/public/x", &two, b"").await.expect_status(200);
    trace_of(&desk.upstream.last_request());
}

#[tokio::test]
async fn a_strangers_forwarding_headers_are_rebuilt() {
    let desk = Gateway::with("[server]\ntrusted_proxies = []").await;
    let alice = desk.sign_in("u1001").await;
    let address = desk.address().to_string();
    let forged = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-For", "evil.example"),
        ("X_Forwarded_For", "6.6.6.6"),
        ("x-forwarded_for", "6.6.6.6"),
        ("X.Forwarded.For", "6.6.6.6"),
        ("X-Forwarded-Proto", "evil"),
        ("X-Forwarded-Host", "evil.example"),
        ("X_Forwarded_Host", "evil.example"),
        ("X-Forwarded-Port", "666"),
        ("X-Forwarded-Server", "evil.example"),
        ("X-Forwarded-Uri", "/evil"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Forwarded-Method", "EVIL"),
        ("Forwarded", "for=6.6.6.6;host=evil.example;proto=evil"),
        ("X-Original-URL", "/evil"),
        ("X-Original-Url", "/evil"),
        ("X_Original_URL", "/evil"),
        ("X-Rewrite-URL", "/evil"),
        ("X-HTTP-Method-Override", "EVIL"),
        ("X-HTTP-Method", "EVIL"),
        ("X-Method-Override", "EVIL"),
    ];
    let mut heads = Vec::new();
    alice.send("GET", "/api/desk/x", &forged, b"").await.expect_status(200);
    heads.push(desk.upstream.last_request());
    desk.anyone().send("GET", "/public/x", &forged, b"").await.expect_status(200);
    heads.push(desk.upstream.last_request());
    let shake = forged.iter().fold(alice.handshake("/ws/employee"), |shake, (name, value)| shake.header(name, value));
    let _socket = shake.open().await.unwrap_or_else(|answer| panic!("{}", answer.describe()));
    heads.push(desk.upstream.last_request());
    for seen in heads {
        let head = String::from_utf8_lossy(&seen.head).to_ascii_lowercase();
        assert!(!head.contains("evil") && !head.contains("6.6.6.6") && !head.contains(": 666"), "{head}");
        assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"), "{head}");
        assert_eq!(seen.header("x-forwarded-proto"), Some("http"), "{head}");
        assert_eq!(seen.header("x-forwarded-host"), Some(address.as_str()), "{head}");
    }
}

#[tokio::test]
async fn forwarding_headers_are_set_where_there_were_none() {
    let desk = Gateway::start().await;
    desk.anyone().get("/public/x").await.expect_status(200);
    let seen = desk.upstream.last_request();
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some(desk.address().to_string().as_str()));
}

#[tokio::test]
async fn a_trusted_peers_client_address_is_believed_and_nothing_else() {
    let desk = Gateway::start().await;
    let first_of = |seen: &Recorded| {
        let all = seen.header("x-forwarded-for").expect("X-Forwarded-For").to_owned();
        all.split(',').next().unwrap_or_default().trim().to_owned()
    };
    for (given, client) in [
        (vec!["203.0.113.7"], "203.0.113.7"),
        (vec!["203.0.113.7, 10.0.0.1"], "203.0.113.7"),
        (vec!["203.0.113.7", "10.0.0.1"], "203.0.113.7"),
        (vec!["2001:db8::7"], "2001:db8::7"),
    ] {
        let mut headers: Vec<(&str, &str)> = given.iter().map(|value| ("X-Forwarded-For", *value)).collect();
        headers.extend([
            ("X-Forwarded-Proto", "evil"),
            ("X-Forwarded-Host", "evil.example"),
            ("Forwarded", "for=evil"),
        ]);
        desk.anyone().send("GET", "/public/x", &headers, b"").await.expect_status(200);
        let seen = desk.upstream.last_request();
        assert_eq!(first_of(&seen), client, "{given:?}");
        assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
        assert!(!String::from_utf8_lossy(&seen.head).contains("evil"), "{}", String::from_utf8_lossy(&seen.head));
    }
    for nonsense in ["", "evil.example", "unknown", "203.0.113.7.9", "evil, 203.0.113.7", "999.1.1.1"] {
        desk.upstream.forget();
        let answer = desk.anyone().with_header("X-Forwarded-For", nonsense).get("/public/x").await;
        if answer.status == 400 {
            assert!(desk.upstream.requests().is_empty());
            continue;
        }
        let seen = desk.upstream.only_request();
        assert!(first_of(&seen).parse::<std::net::IpAddr>().is_ok(), "{nonsense}: {}", first_of(&seen));
        assert!(!String::from_utf8_lossy(&seen.head).contains("evil"), "{nonsense}");
    }
}

#[tokio::test]
async fn answers_never_carry_identity_headers() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let forged = "X-Deskgate-Employee-Id: m5001\r\nx-deskgate-roles: admin\r\nX_Deskgate_Name: x\r\n\
                  X-DESKGATE-ASSERTION: a.b.c\r\nX-Deskgate-Anything: x\r\nX-Own: kept\r\n";
    desk.upstream.behave(Behaviour::Answer(ok(forged, b"hello")));
    let mut answers = vec![
        desk.anyone().get("/public/x").await.expect_status(200),
        alice.get("/api/desk/x").await.expect_status(200),
        alice.handshake("/ws/employee").open().await.err().expect("no 101"),
    ];
    let mut visits = Visits::at(&desk.upstream);
    let shake = alice.handshake("/ws/employee");
    let accept = async { visits.next().await.accept_with(forged, b"").await };
    let ((answer, _end), ()) = tokio::join!(End::through(&desk, &shake), accept);
    answers.push(answer);
    for answer in answers {
        let folded = |name: &str| name.to_ascii_lowercase().replace(['_', '.'], "-");
        let ours: Vec<&String> =
            answer.headers.iter().map(|(name, _)| name).filter(|name| folded(name).starts_with("x-deskgate")).collect();
        assert!(ours.is_empty(), "{ours:?} in {}", answer.describe());
        assert_eq!(answer.header("x-own"), Some("kept"), "{}", answer.describe());
    }
}

#[tokio::test]
async fn the_token_stays_here_unless_the_rule_says_otherwise() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for target in ["/api/desk/x", "/public/x"] {
        alice.with_header("Cookie", "own=1").get(target).await.expect_status(200);
        let seen = desk.upstream.last_request();
        assert_eq!(seen.header("authorization"), None, "{target}");
        assert_eq!(seen.header("cookie"), Some("own=1"), "{target}");
    }
    let _socket = alice.websocket("/ws/employee").await;
    let everything = String::from_utf8_lossy(&desk.upstream.all_bytes()).into_owned();
    assert!(!everything.contains(alice.token()), "the token went along");

    alice.get("/api/token-too/x").await.expect_status(200);
    let expected = format!("Bearer {}", alice.token());
    assert_eq!(desk.upstream.last_request().header("authorization"), Some(expected.as_str()));
}

#[tokio::test]
async fn the_same_token_is_judged_on_every_route() {
    let desk = Gateway::start().await;
    let anton = desk.sign_in("a2001").await;
    for _ in 0..5 {
        anton.get("/api/agent-desk/x").await.expect_status(200);
        anton.get("/api/admin-desk/x").await.expect_code(1003);
        anton.get("/api/desk/x").await.expect_status(200);
    }
    let rounds = (0..50).map(|_| async {
        let (yes, no) = tokio::join!(anton.get("/api/agent-desk/x"), anton.get("/api/admin-desk/x"));
        yes.expect_status(200);
        no.expect_code(1003);
    });
    futures::future::join_all(rounds).await;
    assert!(desk.upstream.requests().iter().all(|seen| !seen.target.starts_with("/api/admin-desk")));
}

#[tokio::test]
async fn a_refusal_names_what_is_missing() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    for (path, role) in [("/api/agent-desk/x", "agent"), ("/api/admin-desk/x", "admin")] {
        let answer = alice.get(path).await.expect_code(1003);
        assert!(answer.message().contains(role), "{}", answer.message());
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(challenge.contains("error=\"insufficient_scope\""), "RFC 6750: {}", answer.describe());
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn many_clients_at_once_each_get_their_own_answer() {
    let desk = Gateway::start().await;
    let people = [desk.sign_in("u1001").await, desk.sign_in("a2001").await, desk.sign_in("m5001").await];
    let ids = ["u1001", "a2001", "m5001"];
    let requests = (0..150).map(|number| {
        let (person, id) = (&people[number % 3], ids[number % 3]);
        async move {
            let target = format!("/api/desk/{number}");
            let answer = person.get(&target).await.expect_status(200).json();
            assert_eq!(answer["target"], target);
            let headers = answer["headers"].as_array().expect("headers");
            let seen = headers
                .iter()
                .find(|line| line[0].as_str().is_some_and(|n| n.eq_ignore_ascii_case("x-deskgate-employee-id")));
            assert_eq!(seen.map(|line| &line[1]), Some(&json!(id)), "{target}");
        }
    });
    within(Duration::from_secs(60), "150 answers", futures::future::join_all(requests)).await;
}

//! The log lines of requests and WebSockets: which host a request named, and which address of its upstream it reached.

use serde_json::Value;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::support::*;

/// The log line of a request with this path.
async fn line_of(desk: &Gateway, path: &str) -> Value {
    let path = format!(r#""http.path":"{path}""#);
    let line = desk.wait_for_log(&["deskgate::request", &path]).await;
    serde_json::from_str(&line).expect("JSON")
}

fn upstream_of(line: &Value) -> (&Value, &Value, &Value) {
    (&line["upstream.name"], &line["upstream.address"], &line["attempts"])
}

/// Two addresses, of which the first refuses connections.
async fn with_a_dead_address(more: &str) -> (Gateway, Upstream, Upstream) {
    let (dead, live) = (Upstream::start().await, Upstream::start().await);
    dead.stop_listening().await;
    let settings =
        format!("[upstreams.helpdesk]\naddresses = [\"{}\", \"{}\"]\n{more}", dead.address(), live.address());
    (Gateway::setup().tls().toml(&settings).start().await, dead, live)
}

#[tokio::test]
async fn line_names_the_address_and_the_attempts_in_every_lane() {
    let (desk, _dead, live) = with_a_dead_address("ejection = { failures = 0 }\nretry_budget = 100").await;
    let (client, http2) = (desk.anonymous(), desk.anonymous().http2().await);
    let live = Value::from(live.address().to_string());
    for method in ["GET", "POST"] {
        // A retry takes the turn of the other address, so that every request begins at the dead one.
        let (http1, streams) = (format!("/public/http1-{method}"), format!("/public/http2-{method}"));
        client.send(method, &http1, &[], b"").await.expect_status(200);
        http2.send(method, &streams, &[], b"").await.expect_status(200);
        for path in [http1, streams] {
            let line = line_of(&desk, &path).await;
            assert_eq!(upstream_of(&line), (&"helpdesk".into(), &live, &2.into()), "{line}");
        }
    }
}

#[tokio::test]
async fn failed_request_names_the_last_address() {
    let desk = Gateway::with("[upstreams.helpdesk]\nretries = 0").await;
    let address = Value::from(desk.upstream.address().to_string());
    desk.upstream.set_behaviour(Behaviour::CloseWithoutResponse);
    desk.anonymous().get("/public/get").await.expect_code(1502);
    desk.anonymous().post("/public/post").await.expect_code(1502);
    for path in ["/public/get", "/public/post"] {
        let line = line_of(&desk, path).await;
        assert_eq!(upstream_of(&line), (&"helpdesk".into(), &address, &1.into()), "{line}");
    }
}

#[tokio::test]
async fn line_of_a_client_that_disconnects_names_the_address_also_if_only_refusals_are_logged() {
    let desk = Gateway::with("[log]\nrequests = \"refused\"").await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    for (number, method) in ["GET", "POST"].into_iter().enumerate() {
        let path = format!("/public/{method}");
        let mut client = desk.connect().await;
        client.send(&raw_request(&desk, &format!("{method} {path}"), "Content-Length: 0\r\n", b"")).await;
        eventually("the request", || async { (desk.upstream.requests().len() > number).then_some(()) }).await;
        drop(client);
        let line = line_of(&desk, &path).await;
        assert_eq!(line["message"], "the client disconnected before the response", "{line}");
        let address = Value::from(desk.upstream.address().to_string());
        assert_eq!(upstream_of(&line), (&"helpdesk".into(), &address, &1.into()), "{line}");
    }
}

#[tokio::test]
async fn line_of_a_cut_request_names_address_and_host() {
    let desk = Gateway::start().await;
    desk.upstream.set_behaviour(Behaviour::NeverRespond);
    let xiaoming = desk.sign_in("u1001").await;
    let mut client = desk.connect().await;
    let bearer = format!("Authorization: Bearer {}\r\n", xiaoming.token());
    client.send(&raw_request(&desk, "GET /api/desk/cut", &bearer, b"")).await;
    eventually("a long request", || async { (desk.metric("deskgate_exchanges_open", &[]).await == 1.0).then_some(()) })
        .await;
    xiaoming.post("/api/auth/logout").await.expect_code(0);
    let line = line_of(&desk, "/api/desk/cut").await;
    let address = Value::from(desk.upstream.address().to_string());
    assert_eq!(upstream_of(&line), (&"helpdesk".into(), &address, &1.into()), "{line}");
    assert_eq!(line["http.host"], desk.address().to_string(), "{line}");
}

#[tokio::test]
async fn line_names_the_host_that_was_checked() {
    let desk = Gateway::setup().tls().toml("[server]\nhosts = [\"Desk.example.test\"]").start().await;
    desk.anonymous().with_host("desk.example.test").get("/public/known").await.expect_status(200);
    desk.anonymous().with_host("other.example.test").get("/public/unknown").await.expect_code(1421);
    let http2 = desk.anonymous().http2().await.with_authority("DESK.example.test:443");
    http2.get("/public/http2").await.expect_status(200);
    let long = format!("{}.test", "a".repeat(2000));
    desk.anonymous().with_host(&long).get("/public/long").await.expect_code(1421);
    desk.anonymous().with_host("secret,desk.example.test").get("/public/invalid").await.expect_code(1400);
    for (path, host) in [
        ("/public/known", "desk.example.test"),
        ("/public/unknown", "other.example.test"),
        ("/public/http2", "DESK.example.test:443"),
        ("/public/long", &long[..255]),
        ("/public/invalid", "-"),
    ] {
        let line = line_of(&desk, path).await;
        assert_eq!(line["http.host"], host, "{line}");
    }
    let refused = line_of(&desk, "/public/unknown").await;
    assert_eq!(upstream_of(&refused), (&Value::Null, &Value::Null, &Value::Null), "{refused}");
}

#[tokio::test]
async fn line_of_a_closed_socket_names_the_address() {
    let desk = Gateway::start().await;
    drop(desk.anonymous().websocket("/ws/public").await);
    let line = desk.wait_for_log(&["deskgate::socket", "socket closed"]).await;
    let address = format!(r#""upstream.address":"{}""#, desk.upstream.address());
    for part in [r#""upstream.name":"helpdesk""#, &address] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let line = line_of(&desk, "/ws/public").await;
    assert_eq!(line["upstream.address"], desk.upstream.address().to_string(), "{line}");
}

#[tokio::test]
async fn line_of_a_closed_socket_names_who_closed_first_and_the_code() {
    let desk = Gateway::start().await;
    let by_client = desk.sign_in("u1001").await;
    let mut socket = by_client.websocket("/ws/employee").await;
    socket.echo("hello").await;
    let close_frame = CloseFrame { code: CloseCode::from(4000), reason: "bye".into() };
    socket.send_message(Message::Close(Some(close_frame))).await;
    let line = desk.wait_for_log(&["deskgate::socket", "socket closed by the client with 4000"]).await;
    let fields: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&fields["closed_by"], &fields["close.code"]), (&Value::from("client"), &Value::from(4000)), "{line}");

    let mut revoked = by_client.websocket("/ws/employee").await;
    revoked.echo("hello").await;
    by_client.post("/api/auth/logout").await.expect_code(0);
    let line = desk.wait_for_log(&["deskgate::socket", "socket closed by the gateway with 4401"]).await;
    assert!(line.contains(r#""cause":"revoked""#), "{line}");

    drop(desk.anonymous().websocket("/ws/public").await);
    desk.wait_for_log(&["deskgate::socket", "socket closed by the client without a close frame"]).await;
}

#[tokio::test]
async fn fields_are_documented() {
    let desk = Gateway::start().await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    let line = line_of(&desk, "/public/x").await;
    let page = include_str!("../../docs/operations.md");
    let section = page.split("\n## Logs\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a section");
    let first_cells: Vec<&str> =
        section.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").next()).collect();
    for field in line.as_object().expect("fields").keys() {
        let name = format!("`{field}`");
        assert!(first_cells.iter().any(|cell| cell.contains(&name)), "{field} is not in the table: {line}");
    }
}

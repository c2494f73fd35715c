//! `deskgate tail` and `deskgate explain --request-id`: what operators see of single requests.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::support::*;

/// A running `deskgate tail`, and the lines that it prints.
struct Tail {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    notices: mpsc::UnboundedReceiver<String>,
}

/// The lines of an output as they come.
fn lines_of(output: impl Read + Send + 'static) -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

impl Tail {
    /// Starts to follow and waits until it does.
    async fn start(desk: &Gateway, args: &[&str]) -> Tail {
        let mut child = desk.spawn_command(&[&["tail"], args].concat());
        let lines = lines_of(child.stdout.take().expect("an output"));
        let notices = lines_of(child.stderr.take().expect("an error output"));
        let mut tail = Tail { child, lines, notices };
        tail.expect_notice("following requests; press Ctrl-C to stop").await;
        tail
    }

    /// The next line on standard error.
    async fn notice(&mut self) -> String {
        within(TEST_TIMEOUT, "a notice of tail", self.notices.recv()).await.expect("a line")
    }

    async fn expect_notice(&mut self, beginning: &str) {
        let notice = self.notice().await;
        assert!(notice.starts_with(beginning), "{notice}");
    }

    async fn exit_code(mut self) -> Option<i32> {
        tokio::task::spawn_blocking(move || self.child.wait()).await.expect("a thread").expect("an end").code()
    }

    async fn line(&mut self) -> String {
        within(TEST_TIMEOUT, "a line of tail", self.lines.recv()).await.expect("a line")
    }

    async fn json(&mut self) -> Value {
        let line = self.line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request_id(response: &Response) -> String {
    response.header("x-request-id").expect("a request id").to_owned()
}

#[tokio::test]
async fn tail_shows_a_refusal_as_it_happens_without_token_and_query() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut tail = Tail::start(&desk, &["--refused", "--json"]).await;
    xiaoming.get("/api/desk/x").await.expect_status(200);
    let refused = xiaoming.get("/api/agent-desk/x?token=secret-query").await.expect_code(1003);
    let line = tail.json().await;
    let expected = json!({
        "method": "GET", "path": "/api/agent-desk/x", "status": 403, "code": 1003, "rule": "agents",
        "employee_id": "u1001", "client_address": "127.0.0.1", "request_id": request_id(&refused),
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&line[field], value, "{field}: {line}");
    }
    assert!(line["reason"].as_str().is_some_and(|reason| reason.contains("the active role is `user`")), "{line}");
    let text = line.to_string();
    assert!(!text.contains("secret-query") && !text.contains(xiaoming.token()), "{text}");
}

#[tokio::test]
async fn tail_shows_answered_requests_also_if_only_refusals_are_logged() {
    let desk = Gateway::with("[log]\nrequests = \"refused\"").await;
    let mut tail = Tail::start(&desk, &[]).await;
    let answered = desk.anonymous().get("/public/page").await.expect_status(200);
    let line = tail.line().await;
    let id = format!("id={}: answered", request_id(&answered));
    assert!(line.contains(" 200 GET /public/page rule=\"anyone\" employee=- client=127.0.0.1 "), "{line}");
    assert!(line.ends_with(&id), "{line}");
}

#[tokio::test]
async fn tail_shows_the_requests_of_one_employee_or_rule() {
    let desk = Gateway::start().await;
    let (xiaoming, alice) = (desk.sign_in("u1001").await, desk.sign_in("a2001").await);
    let mut of_alice = Tail::start(&desk, &["--employee", "a2001", "--json"]).await;
    let mut of_rule = Tail::start(&desk, &["--rule", "agents", "--json"]).await;
    let mut of_endpoint = Tail::start(&desk, &["--rule", "/api/auth/me", "--json"]).await;
    xiaoming.get("/api/desk/1").await.expect_status(200);
    xiaoming.get("/api/agent-desk/2").await.expect_code(1003);
    assert_eq!(of_rule.json().await["path"], "/api/agent-desk/2");
    alice.get("/api/auth/me").await.expect_code(0);
    assert_eq!(of_alice.json().await["path"], "/api/auth/me");
    alice.get("/api/agent-desk/3").await.expect_status(200);
    assert_eq!(of_alice.json().await["path"], "/api/agent-desk/3");
    assert_eq!(of_rule.json().await["path"], "/api/agent-desk/3");
    assert_eq!(of_endpoint.json().await["employee_id"], "a2001");
}

#[tokio::test]
async fn tail_follows_again_after_a_restart() {
    let mut desk = Gateway::start().await;
    let mut tail = Tail::start(&desk, &["--json"]).await;
    for round in 0..2 {
        desk.restart().await;
        tail.expect_notice("the gateway has ended; waiting up to 1m for it to run again").await;
        tail.expect_notice("following requests again; those of the last ").await;
        let path = format!("/public/{round}");
        desk.anonymous().get(&path).await.expect_status(200);
        assert_eq!(tail.json().await["path"], path);
    }
}

#[tokio::test]
async fn tail_follows_again_after_a_crash() {
    let mut desk = Gateway::start().await;
    let mut tail = Tail::start(&desk, &["--json"]).await;
    desk.sigkill();
    tail.expect_notice("the gateway has ended").await;
    desk.restart().await;
    tail.expect_notice("following requests again").await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    assert_eq!(tail.json().await["path"], "/public/x");
}

#[tokio::test]
async fn tail_goes_on_in_an_upgrade_in_place() {
    let mut desk = Gateway::start().await;
    let mut tail = Tail::start(&desk, &["--json"]).await;
    desk.anonymous().get("/public/old").await.expect_status(200);
    assert_eq!(desk.upgrade().await.code(), Some(0));
    tail.expect_notice("the gateway has ended").await;
    tail.expect_notice("following requests again").await;
    desk.anonymous().get("/public/new").await.expect_status(200);
    assert_eq!(tail.json().await["path"], "/public/old");
    assert_eq!(tail.json().await["path"], "/public/new");
}

#[tokio::test]
async fn tail_shows_the_requests_of_both_processes_while_one_takes_over_in_a_fleet() {
    let mut fleet = Fleet::with("[server]\ndrain = \"10s\"\n").await;
    let desk = &mut fleet.two;
    let mut tail = Tail::start(desk, &["--json"]).await;
    let mut upstream_connections = UpstreamConnections::intercept(&desk.upstream);
    let mut held = desk.connect().await;
    held.send(&raw_request(desk, "GET /public/held", "", b"")).await;
    let mut upstream = upstream_connections.next().await;
    let (server, refused) = (desk.server_address(), raw_request(desk, "GET /nothing", "", b""));
    let proceed = async {
        tail.expect_notice("another process has taken over; following its requests, too").await;
        // The old process still has a request, so it runs; it accepts no new connection.
        eventually("a request of the new process", || async {
            let mut connection = Connection::open(server.clone()).await;
            connection.send(&refused).await;
            connection.response().await.filter(|answer| answer.status == 404)
        })
        .await;
        while tail.json().await["path"] != "/nothing" {}
        upstream.stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        assert_eq!(held.response().await.expect("a response").text(), "done");
        while tail.json().await["path"] != "/public/held" {}
        tail
    };
    let (status, mut tail) = tokio::join!(desk.upgrade(), proceed);
    assert_eq!(status.code(), Some(0));
    desk.anonymous().get("/nothing/more").await.expect_code(1404);
    while tail.json().await["path"] != "/nothing/more" {}
    assert!(tail.notices.try_recv().is_err(), "the end of the old process is no event");
}

#[tokio::test]
async fn tail_ends_if_the_gateway_does_not_come_back() {
    let mut desk = Gateway::start().await;
    let mut waiting = Tail::start(&desk, &["--wait", "300ms"]).await;
    let mut impatient = Tail::start(&desk, &["--wait", "0s"]).await;
    desk.terminate().await;
    waiting.expect_notice("the gateway has ended; waiting up to 300ms for it to run again").await;
    waiting.expect_notice("the gateway has ended and was not back within 300ms").await;
    assert_eq!(waiting.exit_code().await, Some(1));
    impatient.expect_notice("the gateway has ended").await;
    assert_eq!(impatient.exit_code().await, Some(1));
    let output = desk.command(&["tail"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(output.output_text().contains("no gateway is running"), "{}", output.output_text());
    let output = desk.command(&["tail", "--wait", "long"]).await;
    assert_eq!(output.status.code(), Some(2), "{}", output.output_text());
}

#[tokio::test]
async fn follower_that_does_not_read_delays_no_request_and_is_told_what_it_lost() {
    let desk = Gateway::start().await;
    let mut control = UnixStream::connect(desk.data_dir().join("control.sock")).await.expect("a control socket");
    control.write_all(b"{\"follow\":{\"outcomes\":\"all\",\"employee_id\":null,\"rule\":null}}\n").await.expect("sent");
    let mut lines = tokio::io::BufReader::new(control).lines();
    let first = within(TEST_TIMEOUT, "the first line", lines.next_line()).await.expect("a line");
    assert_eq!(first.as_deref(), Some(r#"{"Ok":"started"}"#));
    let path = format!("/public/{}", "x".repeat(500));
    let requests = 2000;
    for _ in 0..requests {
        desk.anonymous().get(&path).await.expect_status(200);
    }
    let (mut shown, mut lost) = (0, 0);
    while shown + lost < requests {
        let line = within(TEST_TIMEOUT, "a line", lines.next_line()).await.expect("a line").expect("no end");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        match line["Ok"]["lost"].as_u64() {
            Some(count) => lost += count,
            None => shown += 1,
        }
    }
    assert!(lost > 0 && shown >= 1024, "{shown} shown, {lost} lost");
    assert_eq!(shown + lost, requests);
}

/// Runs a command line of the shell, with `deskgate` in its path.
async fn shell(command: &str) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_deskgate")).parent().expect("a folder").to_owned();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).env("PATH", folder);
    let output = tokio::task::spawn_blocking(move || shell.output()).await.expect("a thread").expect("a shell");
    output.expect_success()
}

#[tokio::test]
async fn explain_says_why_a_request_was_refused_and_how_to_repeat_the_decision() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let refused = xiaoming.get("/api/agent-desk/x?token=secret-query").await.expect_code(1003);
    let id = request_id(&refused);
    let text = desk.command(&["explain", "--request-id", &id]).await.expect_success();
    for part in ["1003", "`agents` (", "roles: agent", "u1001 as `user`", "authorize", "deskgate role grant ID ROLE"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("secret-query") && !text.contains(xiaoming.token()), "{text}");

    let json = desk.command(&["explain", "--request-id", &id, "--json"]).await.expect_success();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json[0]["code"], &json[0]["check"], &json[0]["phase"]),
        (&json!(1003), &json!("roles"), &json!("authorize"))
    );
    let repeat = json[0]["repeat"].as_str().expect("a command");
    let explained: Value = serde_json::from_str(&shell(&format!("{repeat} --json")).await).expect("JSON");
    let answer = &explained["answer"];
    assert_eq!((&answer["code"], &answer["rule"], &answer["by"]), (&json!(1003), &json!("agents"), &json!("roles")));
}

#[tokio::test]
async fn explain_knows_refusals_of_every_phase() {
    let desk = Gateway::start().await;
    desk.upstream.set_behaviour(Behaviour::CloseWithoutResponse);
    let (anonymous, xiaoming) = (desk.anonymous(), desk.sign_in("u1001").await);
    let table = [
        ("a path in another form", anonymous.get("/public//x").await, "arrive", 1400),
        ("no rule", anonymous.get("/nothing").await, "route", 1404),
        ("no token", anonymous.get("/api/desk/x").await, "verify", 1001),
        ("a forged token", anonymous.with_token("a.b.c").get("/api/desk/x").await, "verify", 1001),
        ("the rule", xiaoming.get("/api/admin-desk/x").await, "authorize", 1003),
        (
            "an endpoint",
            xiaoming.post_json("/api/auth/switch-role", &json!({ "role": "admin" })).await,
            "endpoint",
            1003,
        ),
        ("the upstream", xiaoming.post("/api/desk/x").await, "upstream", 1502),
    ];
    for (case, response, phase, code) in table {
        let id = request_id(&response);
        let json = desk.command(&["explain", "--request-id", &id, "--json"]).await.expect_success();
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&json[0]["phase"], &json[0]["code"]), (&json!(phase), &json!(code)), "{case}: {json}");
        assert!(json[0]["next_step"].as_str().is_some_and(|step| !step.is_empty()), "{case}: {json}");
    }
}

#[tokio::test]
async fn explain_of_a_request_that_was_not_refused_exits_with_3() {
    let mut desk = Gateway::start().await;
    let answered = desk.anonymous().get("/public/page").await.expect_status(200);
    for id in [request_id(&answered), "unknown-request-id".to_owned()] {
        let output = desk.command(&["explain", "--request-id", &id]).await;
        assert_eq!(output.status.code(), Some(3), "{}", output.output_text());
        assert!(output.output_text().contains("has refused no request with the ID"), "{}", output.output_text());
    }
    let both = desk.command(&["explain", "GET", "/x", "--request-id", "12345678"]).await;
    assert_eq!(both.status.code(), Some(2), "{}", both.output_text());
    desk.terminate().await;
    let output = desk.command(&["explain", "--request-id", "12345678"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(output.output_text().contains("no gateway is running"), "{}", output.output_text());
}

#[tokio::test]
async fn explain_knows_requests_that_were_refused_before_they_were_examined() {
    let desk = Gateway::start().await;
    let mut tail = Tail::start(&desk, &["--refused", "--json"]).await;
    let response =
        desk.send_raw(b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n").await.expect("a response").expect_code(1400);
    let id = request_id(&response);
    let json = desk.command(&["explain", "--request-id", &id, "--json"]).await.expect_success();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json[0]["phase"], &json[0]["code"]), (&json!("connection"), &json!(1400)), "{json}");
    assert_eq!(tail.json().await["request_id"], id);
}

#[tokio::test]
async fn explain_knows_sign_ins_that_a_redirect_refused() {
    let desk = Gateway::start().await;
    let refused = desk.phone("x8001").oauth2(&desk.client_url("h5")).await.expect_status(302);
    let id = request_id(&refused);
    let text = desk.command(&["explain", "--request-id", &id]).await.expect_success();
    assert!(text.contains("code 1003") && text.contains("deskgate employee logins"), "{text}");
}

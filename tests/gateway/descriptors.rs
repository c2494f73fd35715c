//! The limit on open files: clients never take the descriptors of readiness, metrics, commands and databases.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::*;

/// Connections of clients that send nothing, of which the kernel keeps those that are not accepted.
async fn crowd(desk: &Gateway, count: usize) -> Vec<TcpStream> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(TcpStream::connect(desk.address()).await.expect("a connection"));
    }
    connections
}

#[tokio::test]
async fn low_limit_on_open_files_is_named_at_the_start_with_numbers() {
    let desk = Gateway::setup().shell("ulimit -n 128").start().await;
    let warning = desk.wait_for_log(&["WARN", "the limit on open files is 128", "limits.connections (100000)"]).await;
    assert!(warning.contains("raise the limit to 20"), "{warning}");
    let desk = Gateway::setup().toml("[limits]\nconnections = 4\n").shell("ulimit -n 512").start().await;
    assert!(!desk.logs().contains("the limit on open files"), "{}", desk.logs());
}

#[tokio::test]
async fn soft_limit_is_raised_to_the_hard_one() {
    let desk = Gateway::setup().toml("[limits]\nconnections = 100\n").shell("ulimit -Sn 64").start().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", desk.pid())).expect("the limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let mut numbers = files.split_whitespace().skip(3);
    assert_eq!(numbers.next(), numbers.next(), "{files}");
}

#[tokio::test]
async fn limit_that_leaves_nothing_for_clients_is_refused() {
    let failure = Gateway::setup().shell("ulimit -n 48").try_start().await.err().expect("no start");
    assert_eq!(failure.status.code(), Some(1));
    assert!(failure.stderr.contains("the limit on open files is 48"), "{}", failure.stderr);
}

#[tokio::test]
async fn crowd_of_clients_leaves_readiness_metrics_commands_and_changes_their_descriptors() {
    let mut desk = Gateway::setup().toml("[limits]\nhead_deadline = \"60s\"\n").shell("ulimit -n 128").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut kept = desk.connect().await;
    let me = raw_request(&desk, "GET /api/auth/me", &format!("Authorization: Bearer {}\r\n", xiaoming.token()), b"");
    kept.send(&me).await;
    kept.response().await.expect("a response").expect_code(0);
    let crowd = crowd(&desk, 200).await;
    eventually("a full gateway", || async {
        // A connection beyond the limit waits in the kernel's queue.
        let mut connection = desk.connect().await;
        connection.send(&me).await;
        tokio::time::timeout(Duration::from_millis(200), connection.response()).await.is_err().then_some(())
    })
    .await;
    let admin = Client::new(desk.admin_address());
    for _ in 0..20 {
        admin.get("/api/ready").await.expect_code(0);
        assert!((1.0..128.0).contains(&desk.metric("deskgate_process_open_fds", &[]).await));
    }
    desk.command(&["session", "list"]).await.expect_success();
    let upload = raw_request(
        &desk,
        "POST /api/desk/x",
        &format!("Authorization: Bearer {}\r\nContent-Length: 4\r\n", xiaoming.token()),
        b"body",
    );
    for request in [&me, &upload] {
        kept.send(request).await;
        kept.response().await.expect("a response").expect_status(200);
    }
    assert!(!desk.logs().contains("accept failed"), "no accept fails, so none is tried in a loop: {}", desk.logs());
    drop(crowd);
    eventually("recovery", || async { (desk.anonymous().get("/api/ready").await.status == 200).then_some(()) }).await;
    assert_eq!(desk.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn full_limit_on_connections_is_seen_in_metrics_and_the_log() {
    let desk = Gateway::setup().toml("[limits]\nconnections = 8\nhead_deadline = \"60s\"\n").start().await;
    let connections = || async {
        let (open, limit) = ("deskgate_connections_open", "deskgate_connections_limit");
        (desk.metric(open, &[]).await, desk.metric(limit, &[]).await)
    };
    let stops = || desk.metric("deskgate_limit_reached_total", &["limit=\"connections\""]);
    assert_eq!(connections().await.1, 8.0);
    assert_eq!(stops().await, 0.0);
    let full = crowd(&desk, 12).await;
    eventually("a full gateway", || async { (connections().await == (8.0, 8.0)).then_some(()) }).await;
    eventually("a stop", || async { (stops().await == 1.0).then_some(()) }).await;
    let warning = "as many clients are connected as there may be";
    desk.wait_for_log(&["WARN", warning, "limits.connections"]).await;
    drop(full);
    eventually("no connection", || async { (connections().await == (0.0, 8.0)).then_some(()) }).await;
    let _again = crowd(&desk, 12).await;
    eventually("a full gateway", || async { (connections().await.0 == 8.0).then_some(()) }).await;
    eventually("further stops", || async { (stops().await > 1.0).then_some(()) }).await;
    assert_eq!(desk.logs().matches(warning).count(), 1, "at most once a minute");
}

#[tokio::test]
async fn admin_listener_answers_ready_as_the_client_listener_does() {
    let desk = Gateway::with("[server]\ndrain_delay = \"20s\"\n").await;
    let admin = Client::new(desk.admin_address());
    let (ours, theirs) = (admin.get("/api/ready").await, desk.anonymous().get("/api/ready").await);
    assert_eq!(ours.expect_code(0).data(), theirs.expect_code(0).data());
    admin.post("/api/ready").await.expect_status(405);
    desk.signal("TERM");
    let drains = || async { Some(admin.get("/api/ready").await).filter(|response| response.status == 503) };
    assert_eq!(eventually("a 503", drains).await.code(), 1503);
}

//! A wall clock that jumps while the gateway runs: what is measured goes on as before, and tokens, assertions and
//! whatever is open are judged by the new time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::*;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

/// The jumps that every promise is tried with, in seconds.
const JUMPS: [i64; 3] = [-HOUR, HOUR, TEN_YEARS];

/// The gateway notices a jump within a second or two; a busy machine takes longer.
const NOTICED: Duration = Duration::from_secs(10);

const PASSWORD: &str = "correct horse battery staple";

async fn start() -> Gateway {
    Gateway::setup().movable_clock().start().await
}

/// The seconds since 1970 by a clock with this offset.
fn time_at(offset: i64) -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() as i64 + offset
}

/// Signs an employee in two hours ago.
async fn sign_in_two_hours_ago(desk: &Gateway, employee: &str) -> Client {
    desk.clock().set_offset(-2 * HOUR);
    let client = desk.sign_in(employee).await;
    desk.clock().set_offset(0);
    client
}

fn retry_after(response: &Response) -> u64 {
    response.header("retry-after").expect("a time").parse().expect("seconds")
}

#[tokio::test]
async fn jump_is_logged_and_counted() {
    let desk = start().await;
    for (number, jump) in [-HOUR, TEN_YEARS].into_iter().enumerate() {
        desk.clock().set_offset(jump);
        eventually("a noticed jump", || async {
            (desk.metric("deskgate_clock_jumps_total", &[]).await > number as f64 * 2.0).then_some(())
        })
        .await;
        desk.clock().set_offset(0);
        eventually("a noticed jump back", || async {
            (desk.metric("deskgate_clock_jumps_total", &[]).await > number as f64 * 2.0 + 1.0).then_some(())
        })
        .await;
    }
    let direction =
        async |word: &str| desk.metric("deskgate_clock_jumps_total", &[&format!("direction=\"{word}\"")]).await;
    assert_eq!((direction("forward").await, direction("back").await), (2.0, 2.0));
    desk.wait_for_log(&["the wall clock jumped", "3600"]).await;
}

#[tokio::test]
async fn circuit_stays_open_for_its_own_time_whatever_the_clock_does() {
    let unlimited = "[[endpoint]]\npath = \"/api/auth/qrcode\"\nrate = []\n";
    for jump in JUMPS {
        let desk = Gateway::setup().movable_clock().more_rules(unlimited).start().await;
        desk.set_platform_switches(json!({ "bad_gateway": { "*": "all" } })).await;
        for _ in 0..5 {
            desk.phone("u1001").oauth2(&desk.client_url("h5")).await.expect_status(302);
        }
        desk.clock().set_offset(jump);
        let refused = desk.anonymous().get("/api/auth/qrcode").await;
        assert!((1..=5).contains(&retry_after(&refused)), "{jump}: {}", refused.describe());
        refused.expect_code(1503);
        desk.set_platform_switches(json!({})).await;
        eventually("a closed circuit", || async {
            (desk.anonymous().get("/api/auth/qrcode").await.status == 200).then_some(())
        })
        .await;
        desk.sign_in_by_oauth2("u1001", "h5").await.get("/api/auth/me").await.expect_code(0);
    }
}

#[tokio::test]
async fn rate_window_is_the_same_whatever_the_clock_does() {
    let limited = "\n[[rule]]\nname = \"limited\"\npath = \"/limited\"\nupstream = \"helpdesk\"\npublic = true\n\
                   rate = [{ by = \"address\", limit = 1, per = \"1m\" }]\n";
    for jump in JUMPS {
        let desk = Gateway::setup().movable_clock().more_rules(limited).start().await;
        desk.anonymous().get("/limited").await.expect_status(200);
        desk.clock().set_offset(jump);
        let refused = desk.anonymous().get("/limited").await;
        assert!((1..=61).contains(&retry_after(&refused)), "{jump}: {}", refused.describe());
        refused.expect_code(1429);
    }
}

#[tokio::test]
async fn readiness_follows_the_disk_whatever_the_clock_does() {
    for jump in JUMPS {
        let desk = start().await;
        desk.anonymous().get("/api/ready").await.expect_code(0);
        desk.clock().set_offset(jump);
        desk.anonymous().get("/api/ready").await.expect_code(0);
        std::fs::rename(desk.data_dir(), desk.data_dir().with_extension("away")).expect("a rename");
        eventually("not ready", || async { (desk.anonymous().get("/api/ready").await.status == 503).then_some(()) })
            .await;
    }
}

#[tokio::test]
async fn lockout_does_not_grow_when_the_clock_is_set_back() {
    let desk = start().await;
    let password = json!({ "new_password": PASSWORD });
    desk.sign_in("a2001").await.post_json("/api/agents/password", &password).await.expect_code(0);
    let login = async |password: &str| {
        desk.anonymous().post_json("/api/agents/login", &json!({ "employee_id": "a2001", "password": password })).await
    };
    for _ in 0..5 {
        login("wrong").await.expect_code(1011);
    }
    for offset in [-HOUR, -TEN_YEARS] {
        desk.clock().set_offset(offset);
        let locked = login(PASSWORD).await;
        assert!((1..=30).contains(&retry_after(&locked)), "{offset}: {}", locked.describe());
        locked.expect_code(1429);
    }
    desk.clock().set_offset(-TEN_YEARS + 31);
    login(PASSWORD).await.expect_code(0);
}

#[tokio::test]
async fn assertion_from_the_future_is_replaced() {
    for offset in JUMPS.into_iter().chain([-30]).filter(|offset| *offset < 0 || *offset == HOUR) {
        let desk = start().await;
        let alice = sign_in_two_hours_ago(&desk, "a2001").await;
        let times = async || {
            desk.upstream.clear_requests();
            alice.get("/api/desk/x").await.expect_status(200);
            let claims = claims_of(desk.upstream.only_request().header("x-deskgate-assertion").expect("an assertion"));
            (claims["iat"].as_i64().expect("iat"), claims["exp"].as_i64().expect("exp"))
        };
        times().await;
        desk.clock().set_offset(offset);
        let (issued, expires) = times().await;
        let now = time_at(offset);
        assert!(issued <= now && now < expires, "{offset}: from {issued} to {expires}, now {now}");
    }
}

#[tokio::test]
async fn known_token_from_the_future_is_refused_as_an_unknown_one() {
    let desk = start().await;
    let (known, unknown) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let older = sign_in_two_hours_ago(&desk, "u1001").await;
    for client in [&known, &older] {
        client.get("/api/desk/x").await.expect_status(200);
    }
    desk.clock().set_offset(-HOUR);
    for client in [&known, &unknown] {
        client.get("/api/desk/x").await.expect_invalid_token();
        client.get("/api/auth/me").await.expect_invalid_token();
        client.handshake("/ws/employee").expect_refused().await.expect_invalid_token();
        let verified = desk.anonymous().post_json("/api/auth/verify", &json!({ "token": client.token() })).await;
        assert_eq!(verified.expect_code(0).data()["valid"], false);
    }
    older.get("/api/desk/x").await.expect_status(200);
    // Within `token.leeway`.
    desk.clock().set_offset(-20);
    for client in [&known, &unknown, &older] {
        client.get("/api/desk/x").await.expect_status(200);
    }
}

#[tokio::test]
async fn websocket_does_not_outlive_its_token_when_the_clock_is_set_forward() {
    for jump in [9 * HOUR, TEN_YEARS] {
        let desk = start().await;
        let xiaoming = desk.sign_in("u1001").await;
        let mut socket = xiaoming.websocket("/ws/employee").await;
        let mut public = desk.anonymous().websocket("/ws/public").await;
        desk.clock().set_offset(HOUR);
        desk.wait_for_log(&["the wall clock jumped"]).await;
        socket.echo("an hour is less than the token's lifetime").await;
        desk.clock().set_offset(jump);
        assert_eq!(socket.close_code_within(NOTICED).await, Some(4401), "{jump}");
        public.echo("still open").await;
        xiaoming.get("/api/desk/x").await.expect_invalid_token();
        eventually("a closed socket in the metrics", || async {
            let closed = desk.metric("deskgate_websockets_closed_total", &["cause=\"expired\""]).await;
            (closed == 1.0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn exchange_does_not_outlive_its_token_when_the_clock_is_set_forward() {
    const EVENTS: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nevent 1\n\r\n";
    for jump in [9 * HOUR, TEN_YEARS] {
        let desk = start().await;
        let xiaoming = desk.sign_in("u1001").await;
        let mut connections = UpstreamConnections::intercept(&desk.upstream);
        let mut client = BufferedStream::from_connection(desk.connect().await);
        let authorization = format!("Authorization: Bearer {}\r\n", xiaoming.token());
        client.send(&raw_request(&desk, "GET /api/desk/x", &authorization, b"")).await;
        let mut upstream = connections.next().await.stream;
        upstream.send(EVENTS.as_bytes()).await;
        client.read_until(b"event 1\n\r\n").await;
        eventually("a registered exchange", || async {
            (desk.metric("deskgate_exchanges_open", &[]).await == 1.0).then_some(())
        })
        .await;
        desk.clock().set_offset(jump);
        client.read_to_end_within(NOTICED).await;
        upstream.read_to_end_within(NOTICED).await;
        assert_eq!(desk.metric("deskgate_exchanges_cut_total", &["cause=\"expired\""]).await, 1.0, "{jump}");
    }
}

#[tokio::test]
async fn websocket_of_a_token_from_the_future_is_closed() {
    let desk = start().await;
    let older = sign_in_two_hours_ago(&desk, "u1001").await;
    let mut stays = older.websocket("/ws/employee").await;
    let mut ends = desk.sign_in("u1001").await.websocket("/ws/employee").await;
    desk.clock().set_offset(-HOUR);
    assert_eq!(ends.close_code_within(NOTICED).await, Some(4401));
    stays.echo("valid at that time too").await;
}

#[tokio::test]
async fn ticket_does_not_live_longer_when_the_clock_is_set_back() {
    let desk = start().await;
    for offset in [-HOUR, HOUR] {
        desk.clock().set_offset(0);
        let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
        let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
        assert_eq!(desk.anonymous().get(&poll).await.expect_code(0).data()["status"], "waiting");
        desk.clock().set_offset(offset);
        assert_eq!(desk.anonymous().get(&poll).await.expect_code(0).data()["status"], "expired", "{offset}");
    }
}

#[tokio::test]
async fn one_time_code_works_once_whatever_the_clock_does() {
    wait_for_otp_step_with_time_left().await;
    let desk = start().await;
    let alice = desk.sign_in("a2001").await;
    let device = OtpDevice::set_up_and_bind(&alice).await;
    let code = json!({ "code": device.code(0) });
    let verify = async || alice.post_json("/api/auth/otp-verify", &code).await;
    verify().await.expect_code(0);
    // The device's codes of these times are another step's: this one stays used.
    for offset in [-29, HOUR, -20, TEN_YEARS, 0] {
        desk.clock().set_offset(offset);
        assert_ne!(verify().await.code(), 0, "{offset}");
    }
}

#[tokio::test]
async fn sign_ins_work_at_any_time_and_after_the_clock_is_right_again() {
    let desk = start().await;
    for offset in [-TEN_YEARS, -HOUR, HOUR, TEN_YEARS, 0] {
        desk.clock().set_offset(offset);
        desk.sign_in_by_oauth2("u1001", "h5").await.get("/api/auth/me").await.expect_code(0);
        desk.sign_in_by_qrcode("u1001").await.get("/api/desk/x").await.expect_status(200);
    }
}

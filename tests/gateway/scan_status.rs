//! GET /api/auth/scan/status: waiting, scanned, confirmed, expired. States never go back; only the requesting browser
//! gets the token.

use std::collections::BTreeSet;
use std::time::Instant;

use futures::future::join_all;

use crate::support::*;

/// A browser with a ticket.
struct TicketBrowser {
    browser: Client,
    ticket: String,
    qrcode_url: String,
}

impl TicketBrowser {
    async fn open(desk: &Gateway) -> TicketBrowser {
        TicketBrowser::with(desk.anonymous()).await
    }

    async fn with(browser: Client) -> TicketBrowser {
        let data = browser.get("/api/auth/qrcode").await.expect_code(0).data();
        let text = |name: &str| data[name].as_str().expect("text").to_owned();
        TicketBrowser { ticket: text("ticket"), qrcode_url: text("qrcode_url"), browser }
    }

    async fn poll(&self) -> Value {
        self.poll_with("").await
    }

    async fn poll_with(&self, more: &str) -> Value {
        let target = format!("/api/auth/scan/status?ticket={}{more}", self.ticket);
        self.browser.get(&target).await.expect_code(0).data()
    }
}

#[track_caller]
fn expect_status_only(state: &Value, status: &str) {
    assert_eq!(state["status"], status, "{state}");
    for member in ["employee_id", "name", "token"] {
        assert!(state[member].is_null(), "further members in state {status}: {state}");
    }
}

#[tokio::test]
async fn ticket_goes_from_waiting_to_scanned_to_confirmed() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    expect_status_only(&ticket_browser.poll().await, "waiting");

    let phone = desk.phone("u1001");
    let page = phone.scan_to_page(&ticket_browser.qrcode_url).await;
    let state = ticket_browser.poll().await;
    assert_eq!(state["status"], "scanned");
    assert_eq!(state["employee_id"], "u1001");
    assert!(state["name"].as_str().is_some_and(|name| !name.is_empty()), "{state}");
    assert!(state["token"].is_null(), "not confirmed yet: {state}");

    let response = phone.tap(&page, "confirm").await;
    assert!(matches!(response.status, 200 | 302 | 303), "{}", response.describe());
    let state = ticket_browser.poll().await;
    assert_eq!(state["status"], "confirmed");
    assert_eq!(state["employee_id"], "u1001");
    let me = desk.with_token(state["token"].as_str().expect("a token")).get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["employee_id"], &me["login_source"]), (&json!("u1001"), &json!("qrcode")));
    assert_eq!(me["name"], state["name"]);
}

#[tokio::test]
async fn scan_confirms_when_confirmation_is_disabled() {
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let response = desk.phone("a2001").scan(&ticket_browser.qrcode_url).await;
    assert!(matches!(response.status, 200 | 302 | 303), "{}", response.describe());
    assert!(!response.describe().contains("token="), "the phone gets no token: {}", response.describe());

    let state = ticket_browser.poll().await;
    assert_eq!((&state["status"], &state["employee_id"]), (&json!("confirmed"), &json!("a2001")));
    desk.with_token(state["token"].as_str().expect("a token")).get("/api/desk/x").await.expect_status(200);
}

#[track_caller]
fn expect_ended(state: &Value, reason: &str) {
    expect_status_only(state, "expired");
    assert_eq!(state["reason"], reason, "{state}");
}

#[tokio::test]
async fn cancel_on_the_phone_expires_the_ticket() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let phone = desk.phone("u1001");
    let page = phone.scan_to_page(&ticket_browser.qrcode_url).await;
    phone.tap(&page, "cancel").await;
    expect_ended(&ticket_browser.poll().await, "cancelled");

    phone.tap(&page, "confirm").await;
    expect_ended(&ticket_browser.poll().await, "cancelled");
}

#[tokio::test]
async fn confirm_page_shows_the_requesting_browser() {
    let desk = Gateway::start().await;
    let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
    let browser = desk.anonymous().with_header("X-Forwarded-For", "203.0.113.9").with_header("User-Agent", firefox);
    let ticket_browser = TicketBrowser::with(browser).await;
    let page = desk.phone("u1001").scan_to_page(&ticket_browser.qrcode_url).await;

    let name = ticket_browser.poll().await["name"].as_str().expect("a name").to_owned();
    let text = page.text();
    assert!(text.contains(&name), "the member's name: {text}");
    assert!(text.contains("203.0.113.9"), "the address of the browser: {text}");
    assert!(text.contains("Firefox"), "the kind of the browser: {text}");
    let digits = text.split_whitespace().filter(|word| word.len() == 2 && word.bytes().all(|b| b.is_ascii_digit()));
    assert!(digits.count() >= 1, "the two-digit number: {text}");
    assert_eq!(page.response.header("cache-control"), Some("no-store"));
    assert!(page.response.header("content-security-policy").is_some(), "{}", page.response.describe());
}

#[tokio::test]
async fn user_agent_is_escaped_on_the_confirm_page() {
    let desk = Gateway::start().await;
    let browser = desk.anonymous().with_header("User-Agent", "<script>alert(1)</script>\"'><img src=x>");
    let ticket_browser = TicketBrowser::with(browser).await;
    let page = desk.phone("u1001").scan_to_page(&ticket_browser.qrcode_url).await;
    assert!(!page.html.contains("<script>alert") && !page.html.contains("<img src=x"), "{}", page.html);
}

#[tokio::test]
async fn tampered_confirmation_is_refused() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let phone = desk.phone("u1001");
    let page = phone.scan_to_page(&ticket_browser.qrcode_url).await;

    // Another phone, without the first one's cookies but with its hidden fields.
    let mut forged = page.form("confirm");
    for (name, value) in &mut forged.fields {
        if name != "answer" {
            *value = "A".repeat(value.len());
        }
    }
    let response = desk.phone("a2001").submit(&page, &forged).await;
    assert!(response.status < 500, "{}", response.describe());
    assert_eq!(ticket_browser.poll().await["status"], "scanned");
}

#[tokio::test]
async fn repeated_polls_return_one_session() {
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    desk.phone("u1001").scan(&ticket_browser.qrcode_url).await;

    let polls = futures::future::join_all((0..20).map(|_| ticket_browser.poll())).await;
    let mut sessions = BTreeSet::new();
    for state in polls {
        assert_eq!(state["status"], "confirmed", "a repeated poll gets the token again: {state}");
        sessions.insert(jti_of(state["token"].as_str().expect("a token")));
    }
    assert_eq!(sessions.len(), 1, "twenty polls, one session");
}

#[tokio::test]
async fn first_scanner_owns_the_ticket() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let first = desk.phone("u1001");
    let page = first.scan_to_page(&ticket_browser.qrcode_url).await;

    let second = desk.phone("m5001");
    let response = second.scan(&ticket_browser.qrcode_url).await;
    if response.status == 302 && !response.location().contains("error") {
        let page = second.page(&response.location()).await;
        if page.html.contains("confirm") {
            second.tap(&page, "confirm").await;
        }
    }
    let state = ticket_browser.poll().await;
    assert_eq!((&state["status"], &state["employee_id"]), (&json!("scanned"), &json!("u1001")));

    first.tap(&page, "confirm").await;
    let state = ticket_browser.poll().await;
    assert_eq!((&state["status"], &state["employee_id"]), (&json!("confirmed"), &json!("u1001")));
    desk.phone("m5001").scan(&ticket_browser.qrcode_url).await;
    let state = ticket_browser.poll().await;
    assert_eq!(
        (&state["status"], &state["employee_id"]),
        (&json!("confirmed"), &json!("u1001")),
        "the state went back"
    );
}

#[tokio::test]
async fn refused_member_cannot_confirm_a_ticket() {
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    for (case, member) in [
        ("a disabled member", "x8001"),
        ("a member of a connected corporation without an account", "wwpartner/p7001"),
        ("a member who refuses to authorize", "deny"),
    ] {
        let ticket_browser = TicketBrowser::open(&desk).await;
        let response = desk.phone(member).scan(&ticket_browser.qrcode_url).await;
        assert!(response.status < 500, "{case}: {}", response.describe());
        expect_ended(&ticket_browser.poll_with("&wait=10&seen=waiting").await, "refused");
        let later = desk.phone("u1001").scan(&ticket_browser.qrcode_url).await;
        assert!(later.status >= 400, "{case}: {}", later.describe());
        expect_ended(&ticket_browser.poll().await, "refused");
    }
}

#[tokio::test]
async fn refused_phone_does_not_end_the_ticket_of_the_first_scanner() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let first = desk.phone("u1001");
    let page = first.scan_to_page(&ticket_browser.qrcode_url).await;
    for member in ["x8001", "deny"] {
        desk.phone(member).scan(&ticket_browser.qrcode_url).await;
        assert_eq!(ticket_browser.poll().await["status"], "scanned", "{member}");
    }
    first.tap(&page, "confirm").await;
    assert_eq!(ticket_browser.poll().await["status"], "confirmed");
}

#[tokio::test]
async fn employee_disabled_after_the_confirmation_is_refused() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let phone = desk.phone("u1001");
    let page = phone.scan_to_page(&ticket_browser.qrcode_url).await;
    phone.tap(&page, "confirm").await;
    desk.command(&["employee", "disable", "u1001"]).await.expect_success();
    for _ in 0..2 {
        expect_ended(&ticket_browser.poll().await, "refused");
    }
}

#[tokio::test]
async fn only_the_requesting_browser_learns_why_its_ticket_ended() {
    let desk = Gateway::start().await;
    let browser = || desk.anonymous().with_header("Sec-Fetch-Site", "same-origin");
    let ticket_browser = TicketBrowser::with(browser()).await;
    desk.phone("x8001").scan(&ticket_browser.qrcode_url).await;
    expect_ended(&ticket_browser.poll().await, "refused");
    let target = format!("/api/auth/scan/status?ticket={}", ticket_browser.ticket);
    expect_ended(&browser().get(&target).await.expect_code(0).data(), "expired");
}

#[tokio::test]
async fn unknown_ticket_looks_like_an_expired_one() {
    let desk = Gateway::with("[ticket]\nlifetime = \"1s\"\nlongest_wait = \"1s\"").await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let old = eventually("the end of the ticket", || async {
        Some(ticket_browser.poll().await).filter(|state| state["status"] == "expired")
    })
    .await;
    expect_ended(&old, "expired");

    let long = "x".repeat(10_240);
    for (case, guess) in [
        ("a guess of the right length", "A".repeat(ticket_browser.ticket.len()).as_str()),
        ("a short one", "a"),
        ("an empty one", ""),
        ("a long one", long.as_str()),
        ("NUL", "%00"),
        ("SQL", "%27%20OR%201%3D1--"),
        ("a pattern", "*"),
        ("no UTF-8", "%ff%fe"),
        ("a newline", "%0d%0a"),
    ] {
        let response = desk.anonymous().get(&format!("/api/auth/scan/status?ticket={guess}")).await;
        let state = response.expect_code(0).data();
        assert_eq!(state, old, "{case}");
    }
}

#[tokio::test]
async fn ticket_of_another_browser_is_expired() {
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let browser = || desk.anonymous().with_header("Sec-Fetch-Site", "same-origin");
    let ticket_browser = TicketBrowser::with(browser()).await;
    desk.phone("u1001").scan(&ticket_browser.qrcode_url).await;
    let target = format!("/api/auth/scan/status?ticket={}", ticket_browser.ticket);

    let other = TicketBrowser::with(browser()).await.browser;
    expect_status_only(&other.get(&target).await.expect_code(0).data(), "expired");
    expect_status_only(&browser().get(&target).await.expect_code(0).data(), "expired");
    expect_status_only(&desk.anonymous().get(&target).await.expect_code(0).data(), "expired");
    let forged = desk.anonymous().with_header("Cookie", "deskgate_browser=");
    expect_status_only(&forged.get(&target).await.expect_code(0).data(), "expired");

    let state = ticket_browser.poll().await;
    assert_eq!(state["status"], "confirmed", "the requesting browser: {state}");
}

#[tokio::test]
async fn ticket_polls_without_browser_cookie_work() {
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    assert!(ticket_browser.browser.jar().is_empty(), "a cookie without Sec-Fetch-Site");
    desk.phone("u1001").scan(&ticket_browser.qrcode_url).await;
    let target = format!("/api/auth/scan/status?ticket={}", ticket_browser.ticket);
    let state = desk.anonymous().get(&target).await.expect_code(0).data();
    assert_eq!(state["status"], "confirmed", "{state}");
}

#[tokio::test]
async fn invalid_codes_per_ticket_are_limited() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let state =
        ticket_browser.qrcode_url.split_once("&state=").expect("a state").1.split(['&', '#']).next().expect("a state");
    for number in 0..4 {
        desk.anonymous().get(&format!("/api/auth/oauth2/callback?code=forged{number}&state={state}")).await;
        expect_status_only(&ticket_browser.poll().await, "waiting");
    }
    desk.anonymous().get(&format!("/api/auth/oauth2/callback?code=forged5&state={state}")).await;
    expect_ended(&ticket_browser.poll().await, "refused");
}

#[tokio::test]
async fn repeated_scan_is_answered_only_for_the_same_phone() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let phone = desk.phone("u1001");
    let callback = phone.authorize(&ticket_browser.qrcode_url).await;
    let first = phone.client().get(&callback).await.expect_status(302);
    let again = phone.client().get(&callback).await.expect_status(302);
    assert_eq!(first.location(), again.location());
    let stranger = desk.anonymous().with_header("User-Agent", "another member").get(&callback).await;
    assert!(stranger.header("set-cookie").is_none(), "{}", stranger.describe());
    assert!(stranger.status >= 400, "{}", stranger.describe());
}

#[tokio::test]
async fn tabs_of_one_browser_share_its_cookie() {
    let desk = Gateway::start().await;
    let browser = desk.anonymous().with_header("Sec-Fetch-Site", "same-origin");
    let first = TicketBrowser::with(browser).await;
    let cookies = first.browser.jar().pairs();
    let second = TicketBrowser::with(first.browser).await;
    assert_eq!(second.browser.jar().pairs(), cookies);
    for ticket in [&first.ticket, &second.ticket] {
        let state = second.browser.get(&format!("/api/auth/scan/status?ticket={ticket}")).await.expect_code(0).data();
        expect_status_only(&state, "waiting");
    }
}

#[tokio::test]
async fn confirmation_of_an_expired_ticket_is_refused() {
    let desk = Gateway::with("[ticket]\nlifetime = \"3s\"\nlongest_wait = \"2s\"").await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let phone = desk.phone("u1001");
    let page = phone.scan_to_page(&ticket_browser.qrcode_url).await;
    eventually("the end of the ticket", || async {
        Some(ticket_browser.poll().await).filter(|state| state["status"] == "expired")
    })
    .await;
    let response = phone.tap(&page, "confirm").await;
    assert!(response.status < 500, "{}", response.describe());
    expect_status_only(&ticket_browser.poll().await, "expired");
}

#[tokio::test]
async fn scan_of_an_expired_ticket_is_refused() {
    let desk = Gateway::with("[ticket]\nlifetime = \"1s\"\nlongest_wait = \"1s\"\n[qr]\nconfirm = \"auto\"").await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    eventually("the end of the ticket", || async {
        Some(ticket_browser.poll().await).filter(|state| state["status"] == "expired")
    })
    .await;
    let response = desk.phone("u1001").scan(&ticket_browser.qrcode_url).await;
    assert!(response.status < 500, "{}", response.describe());
    expect_status_only(&ticket_browser.poll().await, "expired");
}

#[tokio::test]
async fn long_poll_returns_on_a_state_change() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let phone = desk.phone("u1001");

    let start = Instant::now();
    let (state, page) =
        tokio::join!(ticket_browser.poll_with("&wait=15"), phone.scan_to_page(&ticket_browser.qrcode_url));
    if state["status"] == "waiting" {
        panic!("the long poll returned unchanged after {:?}", start.elapsed());
    }
    assert_eq!(state["status"], "scanned");
    assert!(start.elapsed().as_secs() < 10, "the long poll took {:?} for an immediate change", start.elapsed());
    phone.tap(&page, "confirm").await;
    assert_eq!(ticket_browser.poll_with("&wait=15").await["status"], "confirmed", "a final state returns at once");
    assert!(start.elapsed().as_secs() < 10, "the poll took {:?}", start.elapsed());
}

#[tokio::test]
async fn long_poll_returns_at_its_time_limit() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let start = Instant::now();
    expect_status_only(&ticket_browser.poll_with("&wait=1").await, "waiting");
    assert!(start.elapsed().as_millis() >= 900, "the poll returned after {:?}", start.elapsed());
}

#[tokio::test]
async fn poll_requires_a_ticket_and_numeric_wait() {
    let desk = Gateway::start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let ticket = &ticket_browser.ticket;
    for (case, query) in [
        ("no ticket", String::new()),
        ("another parameter", "?tickets=a".to_owned()),
        ("wait is not a number", format!("?ticket={ticket}&wait=soon")),
        ("wait is negative", format!("?ticket={ticket}&wait=-1")),
    ] {
        let response = desk.anonymous().get(&format!("/api/auth/scan/status{query}")).await;
        assert_eq!(response.code(), 1400, "{case}");
        response.expect_code(1400);
    }
}

#[tokio::test]
async fn polls_beyond_the_limit_of_a_ticket_are_answered_at_once() {
    const POLLS: usize = 400;
    const HELD: usize = 8;
    let unlimited = "[[endpoint]]\npath = \"/api/auth/scan/status\"\nrate = []\n";
    let desk = Gateway::setup().more_rules(unlimited).start().await;
    let (crowded, other) = (TicketBrowser::open(&desk).await, TicketBrowser::open(&desk).await);
    let target = format!("/api/auth/scan/status?ticket={}&wait=25&seen=waiting", crowded.ticket);
    let (sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..POLLS {
        let (browser, target, sender) = (desk.anonymous(), target.clone(), sender.clone());
        tokio::spawn(async move { sender.send(browser.get(&target).await.expect_code(0).data()) });
    }
    for _ in 0..POLLS - HELD {
        expect_status_only(&answers.recv().await.expect("an answer"), "waiting");
    }
    assert!(desk.metric("deskgate_limit_reached_total", &["limit=\"waiting_polls\""]).await >= (POLLS - HELD) as f64);

    let phone = desk.phone("u1001");
    let (state, _) = tokio::join!(other.poll_with("&wait=25&seen=waiting"), phone.scan_to_page(&other.qrcode_url));
    assert_eq!(state["status"], "scanned", "the poll of another ticket");
    assert!(answers.try_recv().is_err(), "the others are held");
    desk.phone("a2001").scan_to_page(&crowded.qrcode_url).await;
    for _ in 0..HELD {
        assert_eq!(answers.recv().await.expect("an answer")["status"], "scanned");
    }
}

#[tokio::test]
async fn poll_of_a_client_that_left_frees_its_place() {
    const HELD: usize = 8;
    let desk = Gateway::setup().tls().start().await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let target = format!("/api/auth/scan/status?ticket={}&wait=25", ticket_browser.ticket);
    for _ in 0..2 {
        let mut polls = Vec::new();
        for _ in 0..HELD / 2 {
            let mut poll = desk.connect().await;
            poll.send(&raw_request(&desk, &format!("GET {target}"), "", b"")).await;
            polls.push(poll);
        }
        let (streams, target) = (desk.anonymous().http2().await, target.clone());
        let over_http2 = tokio::spawn(async move { join_all((0..HELD / 2).map(|_| streams.get(&target))).await });
        desk.wait_for_requests_in_flight(HELD as f64).await;
        over_http2.abort();
        drop(polls);
        desk.wait_for_requests_in_flight(0.0).await;
    }
    assert_eq!(desk.metric("deskgate_limit_reached_total", &["limit=\"waiting_polls\""]).await, 0.0);
}

#[tokio::test]
async fn pipelined_request_does_not_end_a_poll() {
    let desk = Gateway::with("[ticket]\nlongest_wait = \"1s\"").await;
    let ticket_browser = TicketBrowser::open(&desk).await;
    let poll = format!("GET /api/auth/scan/status?ticket={}&wait=25", ticket_browser.ticket);
    let mut connection = desk.connect().await;
    let start = Instant::now();
    connection.send(&raw_request(&desk, &poll, "", &raw_request(&desk, "GET /public/x", "", b""))).await;
    expect_status_only(&connection.response().await.expect("a response").expect_code(0).data(), "waiting");
    assert!(start.elapsed().as_millis() >= 900, "the poll returned after {:?}", start.elapsed());
    connection.response().await.expect("a response").expect_status(200);
}

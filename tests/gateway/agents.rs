//! POST /api/agents/login and /api/agents/password: the platform first, a local password as fallback.

use std::time::Duration;

use deskgate::domain::clock::Clock;
use deskgate::signin::totp::{OtpSecret, Step};

use crate::support::*;

const GOOD: &str = "correct horse battery staple";
const BETTER: &str = "tidal meadow 47 envelope";

async fn set_password(client: &Client, old: Option<&str>, new: &str) -> Answer {
    let mut body = json!({ "new_password": new });
    if let Some(old) = old {
        body["old_password"] = json!(old);
    }
    client.post_json("/api/agents/password", &body).await
}

async fn login(desk: &Gateway, body: Value) -> Answer {
    desk.anyone().post_json("/api/agents/login", &body).await
}

/// A gateway where a2001 has a local password.
async fn with_password() -> Gateway {
    let desk = Gateway::start().await;
    set_password(&desk.sign_in("a2001").await, None, GOOD).await.expect_code(0);
    desk
}

/// A code of the platform for a member, as an agent's client would get it.
async fn platform_code(desk: &Gateway, member: &str) -> String {
    let phone = desk.phone(member);
    let callback = phone.authorize(&phone.authorize_url(&desk.client_url("itagent")).await).await;
    query_of(&callback, "code").expect("a code")
}

/// Marks an agent as one who must have a device.
async fn demand_device(desk: &Gateway, employee: &str) {
    let url = format!("sqlite:{}", desk.data_dir().join("directory.db").display());
    let mut database = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("the directory");
    sqlx::query("UPDATE agents SET otp_required = 1 WHERE employee_id = $1")
        .bind(employee)
        .execute(&mut database)
        .await
        .expect("a change");
}

#[tokio::test]
async fn an_agent_signs_in_with_a_password() {
    let desk = with_password().await;
    let data = login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    assert_eq!((&data["login_method"], &data["login_source"]), (&json!("password"), &json!("agent")));
    assert_eq!((&data["employee_id"], &data["current_role"]), (&json!("a2001"), &json!("agent")));
    assert!(data.get("failed_tries").is_none(), "{data}");
    let agent = desk.bearing(data["token"].as_str().expect("a token"));
    assert_eq!(agent.get("/api/auth/me").await.expect_code(0).data()["login_source"], "agent");
    agent.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn the_platform_comes_first_and_a_password_is_the_fallback() {
    let desk = with_password().await;
    let code = platform_code(&desk, "a2001").await;
    let data = login(&desk, json!({ "employee_id": "a2001", "code": code })).await.expect_code(0).data();
    assert_eq!((&data["login_method"], &data["login_source"]), (&json!("oauth2"), &json!("agent")));
    // Used up: the platform says no, the password says yes.
    let both = json!({ "employee_id": "a2001", "code": code, "password": GOOD });
    assert_eq!(login(&desk, both).await.expect_code(0).data()["login_method"], "password");
    login(&desk, json!({ "employee_id": "a2001", "code": code })).await.expect_code(1400);
    let both = json!({ "employee_id": "a2001", "code": code, "password": "wrong" });
    login(&desk, both).await.expect_code(1011);
    let code = platform_code(&desk, "m5001").await;
    login(&desk, json!({ "employee_id": "a2001", "code": code })).await.expect_code(1003);
    let code = platform_code(&desk, "u1001").await;
    login(&desk, json!({ "employee_id": "u1001", "code": code })).await.expect_code(1003);
    login(&desk, json!({ "employee_id": "a2001" })).await.expect_code(1400);
}

#[tokio::test]
async fn row_64_nobody_learns_who_is_an_agent_or_has_a_password() {
    let desk = with_password().await;
    for (case, employee) in [
        ("wrong password", "a2001"),
        ("no password set", "s3001"),
        ("an employee who is no agent", "u1001"),
        ("nobody", "z9999"),
        ("no identifier at all", "\u{1f600}"),
        ("another case", "A2001"),
    ] {
        let answer = login(&desk, json!({ "employee_id": employee, "password": "not the password" })).await;
        assert_eq!(answer.code(), 1011, "{case}");
        answer.expect_status(401);
    }
}

#[tokio::test]
async fn row_65_another_password_needs_the_old_one() {
    let desk = Gateway::start().await;
    let agent = desk.sign_in("a2001").await;
    set_password(&agent, None, GOOD).await.expect_code(0);
    set_password(&agent, None, BETTER).await.expect_code(1015).expect_status(400);
    set_password(&agent, Some("wrong one"), BETTER).await.expect_code(1016).expect_status(400);
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0);
    set_password(&agent, Some(GOOD), BETTER).await.expect_code(0);
    login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(1011);
    login(&desk, json!({ "employee_id": "a2001", "password": BETTER })).await.expect_code(0);
    set_password(&desk.sign_in("u1001").await, None, GOOD).await.expect_code(1003);
    set_password(&desk.anyone(), None, GOOD).await.expect_code(1001);
}

#[tokio::test]
async fn row_66_a_password_is_long_enough_strong_enough_and_never_cut() {
    let desk = Gateway::start().await;
    let agent = desk.sign_in("a2001").await;
    for (case, password) in [
        ("short", "aB3$xyz".to_owned()),
        ("common", "password123".to_owned()),
        ("their own name", "AliceChen2001".to_owned()),
        ("too long", "x7".repeat(129)),
        ("a megabyte", "x".repeat(40_000)),
        ("NUL", "correct horse\0battery".to_owned()),
    ] {
        let answer = set_password(&agent, None, &password).await;
        assert!(matches!(answer.code(), 1400 | 1413), "{case}: {}", answer.describe());
    }
    // 73 bytes and more: other schemes cut there.
    let long = format!("{} {}", "tidal meadow envelope ".repeat(5), "end");
    set_password(&agent, None, &long).await.expect_code(0);
    login(&desk, json!({ "employee_id": "a2001", "password": &long[..80] })).await.expect_code(1011);
    login(&desk, json!({ "employee_id": "a2001", "password": long })).await.expect_code(0);
    let composed = "caf\u{e9} tidal meadow 47";
    set_password(&agent, Some(&long), composed).await.expect_code(0);
    let decomposed = "cafe\u{301} tidal meadow 47";
    login(&desk, json!({ "employee_id": "a2001", "password": decomposed })).await.expect_code(0);
}

#[tokio::test]
async fn row_67_wrong_passwords_lock_the_account_whatever_the_address_and_the_owner_is_told() {
    let desk = with_password().await;
    for number in 0..5 {
        let from = format!("203.0.113.{number}");
        let browser = desk.anyone().with_header("X-Forwarded-For", &from);
        let body = json!({ "employee_id": "a2001", "password": "wrong" });
        let answer = browser.post_json("/api/agents/login", &body).await;
        assert_eq!(answer.code(), 1011, "{number}");
    }
    let answer = login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await;
    let wait: u64 = answer.header("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=30).contains(&wait), "{wait}");
    answer.expect_code(1429);
    // A name that is nobody's is locked just the same, however it is spelled.
    for number in 0..6 {
        let name = if number % 2 == 0 { "z9999" } else { "Z9999" };
        let answer = login(&desk, json!({ "employee_id": name, "password": "wrong" })).await;
        assert_eq!(answer.code(), if number < 5 { 1011 } else { 1429 }, "{number}");
    }
    // The platform's way in stays open.
    let code = platform_code(&desk, "a2001").await;
    login(&desk, json!({ "employee_id": "a2001", "code": code })).await.expect_code(0);

    let desk = with_password().await;
    for _ in 0..2 {
        login(&desk, json!({ "employee_id": "a2001", "password": "wrong" })).await.expect_code(1011);
    }
    let data = login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    assert_eq!(data["failed_tries"], 2, "{data}");
}

#[tokio::test]
async fn who_must_have_a_device_and_has_none_gets_a_token_for_binding_one_only() {
    let desk = with_password().await;
    demand_device(&desk, "a2001").await;
    let data = login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data();
    let token = data["token"].as_str().expect("a token");
    assert_eq!(claims_of(token)["stage"], "otp_binding");
    let half = desk.bearing(token);
    half.get("/api/auth/me").await.expect_code(0);
    half.get("/api/auth/otp-status").await.expect_code(0);
    half.get("/api/desk/x").await.expect_code(1003);
    half.get("/api/auth/sessions").await.expect_code(1003);
    set_password(&half, Some(GOOD), BETTER).await.expect_code(1003);
    half.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(1003);
    half.handshake("/ws/agent").refused().await.expect_code(1003);

    let secret =
        half.post("/api/auth/otp-setup").await.expect_code(0).data()["secret"].as_str().expect("text").to_owned();
    let device = OtpSecret::from_bytes(&base32(&secret)).expect("a secret");
    let code = |steps: i64| device.code(Step::from_number(Step::at(Clock::system().now()).number() + steps)).text();
    half.post_json("/api/auth/otp-bind", &json!({ "code": code(0) })).await.expect_code(0);
    half.get("/api/desk/x").await.expect_status(200);

    // From now on the password alone is not enough, and a half-authenticated token binds nothing more (row 63).
    for _ in 0..6 {
        login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(1021);
    }
    let wrong = json!({ "employee_id": "a2001", "password": GOOD, "otp": "000000" });
    login(&desk, wrong).await.expect_code(1022);
    let right = json!({ "employee_id": "a2001", "password": GOOD, "otp": code(1) });
    let data = login(&desk, right).await.expect_code(0).data();
    assert_eq!(data["failed_tries"], 1, "the wrong code, and not the questions for one: {data}");
    assert_eq!(claims_of(data["token"].as_str().expect("a token"))["stage"], "full");
}

#[tokio::test]
async fn row_63_a_half_authenticated_token_cannot_replace_a_device() {
    let desk = with_password().await;
    demand_device(&desk, "a2001").await;
    let halves = [
        login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data(),
        login(&desk, json!({ "employee_id": "a2001", "password": GOOD })).await.expect_code(0).data(),
    ];
    let [owner, thief] = halves.map(|data| desk.bearing(data["token"].as_str().expect("a token")));
    let secret =
        owner.post("/api/auth/otp-setup").await.expect_code(0).data()["secret"].as_str().expect("text").to_owned();
    let device = OtpSecret::from_bytes(&base32(&secret)).expect("a secret");
    let code = device.code(Step::at(Clock::system().now())).text();
    owner.post_json("/api/auth/otp-bind", &json!({ "code": code })).await.expect_code(0);
    thief.post("/api/auth/otp-setup").await.expect_code(1003);
    thief.post_json("/api/auth/otp-bind", &json!({ "code": code })).await.expect_code(1003);
    thief.post_json("/api/auth/otp-verify", &json!({ "code": code })).await.expect_code(1003);
}

#[tokio::test]
async fn row_68_two_hundred_at_once_are_let_in_or_told_to_come_back() {
    let rules = "[[endpoint]]\npath = \"/api/agents/login\"\nrate = []\n";
    let desk = Gateway::setup().more_rules(rules).start().await;
    let alice = desk.sign_in("u1001").await;
    let logins = futures::future::join_all(
        (0..200).map(|number| login(&desk, json!({ "employee_id": format!("z{number}"), "password": "x" }))),
    );
    let others = async {
        for _ in 0..20 {
            within(Duration::from_secs(5), "another route's answer", alice.get("/api/desk/x")).await.expect_status(200);
        }
    };
    let (answers, ()) = tokio::join!(logins, others);
    for answer in &answers {
        assert!(matches!(answer.code(), 1011 | 1503), "{}", answer.describe());
        assert_eq!(answer.code() == 1503, answer.header("retry-after").is_some(), "{}", answer.describe());
    }
    assert!(answers.iter().any(|answer| answer.code() == 1011));
}

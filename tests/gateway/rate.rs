//! Rates: sliding, told truthfully, and bounded in memory whatever keys are invented.

use crate::support::*;

fn rule(name: &str, rate: &str) -> String {
    format!(
        "\n[[rule]]\nname = \"{name}\"\npath = \"/rate/{name}\"\nupstream = \"helpdesk\"\npublic = true\nrate = [{rate}]\n"
    )
}

/// How many of so many requests at once are let through, and the first refusal.
async fn admitted(client: &Client, target: &str, count: usize, headers: &[(&str, &str)]) -> (usize, Option<Answer>) {
    let mut passed = 0;
    let mut refused = None;
    for _ in 0..count {
        let answer = client.send("GET", target, headers, b"").await;
        if answer.status == 200 {
            passed += 1;
        } else if refused.is_none() {
            refused = Some(answer.expect_code(1429));
        }
    }
    (passed, refused)
}

#[tokio::test]
async fn twenty_of_thirty_are_admitted_and_the_rest_told_when() {
    let desk =
        Gateway::setup().more_rules(&rule("minute", "{ by = \"address\", limit = 20, per = \"1m\" }")).start().await;
    let (passed, refused) = admitted(&desk.anyone(), "/rate/minute", 30, &[]).await;
    assert_eq!(passed, 20);
    let refused = refused.expect("a refusal");
    let wait: u64 = refused.header("retry-after").expect("Retry-After").parse().expect("seconds");
    assert!((50..=61).contains(&wait), "{wait}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"address\";q=20;w=60"));
    assert_eq!(refused.header("ratelimit"), Some(format!("\"address\";r=0;t={wait}").as_str()));
    assert_eq!(desk.upstream.requests().len(), 20, "what is refused reaches no upstream");
    let rate = |verdict| desk.metric("deskgate_rate_total", verdict);
    assert_eq!(rate(&["rule=\"minute\"", "verdict=\"allow\""]).await, 20.0);
    assert_eq!(rate(&["rule=\"minute\"", "verdict=\"deny\""]).await, 10.0);
    let id = refused.header("x-request-id").expect("an id").to_owned();
    desk.logged(&[&id, "rate limit exceeded: 20 per 1m by address"]).await;
}

#[tokio::test]
async fn the_wait_that_is_told_is_true() {
    let desk = Gateway::setup().more_rules(&rule("short", "{ by = \"rule\", limit = 3, per = \"2s\" }")).start().await;
    let (passed, refused) = admitted(&desk.anyone(), "/rate/short", 5, &[]).await;
    assert_eq!(passed, 3);
    let wait: u64 = refused.expect("a refusal").header("retry-after").expect("it").parse().expect("seconds");
    assert!((1..=2).contains(&wait), "{wait}");
    // Refusals cost nothing, so asking again and again changes nothing.
    let told = std::time::Instant::now();
    eventually("a free place", || async { (desk.anyone().get("/rate/short").await.status == 200).then_some(()) }).await;
    let took = told.elapsed().as_secs_f64();
    assert!(took <= wait as f64 + 0.5, "{took} s instead of {wait}");
}

#[tokio::test]
async fn each_counts_for_itself() {
    let rules = [
        rule("employee", "{ by = \"employee\", limit = 2, per = \"1m\" }"),
        rule("role", "{ by = \"role\", limit = 2, per = \"1m\" }"),
        rule("session", "{ by = \"session\", limit = 2, per = \"1m\" }"),
        rule("all", "{ by = \"rule\", limit = 2, per = \"1m\" }"),
    ]
    .concat();
    let desk = Gateway::setup().more_rules(&rules).start().await;
    // Twice the same person, somebody else in the same role, somebody in another.
    let (one, again) = (desk.sign_in("a2001").await, desk.sign_in("a2001").await);
    let admin = desk.sign_in("m5001").await;
    let other = desk.sign_in("m5001").await;
    other.post_json("/api/auth/switch-role", &serde_json::json!({"role": "agent"})).await.expect_code(0);
    for (target, expected) in [
        ("/rate/employee", [2, 0, 2, 0]),
        ("/rate/role", [2, 0, 2, 0]),
        ("/rate/session", [2, 2, 2, 2]),
        ("/rate/all", [2, 0, 0, 0]),
    ] {
        let mut passed = Vec::new();
        for client in [&one, &again, &admin, &other] {
            passed.push(admitted(client, target, 3, &[]).await.0);
        }
        assert_eq!(passed, expected, "{target}");
    }
}

#[tokio::test]
async fn row_93_an_address_is_the_believed_one_and_of_ipv6_its_network() {
    let rate = rule("address", "{ by = \"address\", limit = 2, per = \"1m\" }");
    let trusting = Gateway::setup().more_rules(&rate).start().await;
    let anyone = trusting.anyone();
    for (from, expected) in [
        ("2001:db8:1:2::1", 2),
        ("2001:db8:1:2:ffff::9", 0),
        ("2001:db8:1:3::1", 2),
        ("203.0.113.7", 2),
        ("::ffff:203.0.113.7", 0),
        ("203.0.113.8", 2),
    ] {
        let (passed, _) = admitted(&anyone, "/rate/address", 3, &[("X-Forwarded-For", from)]).await;
        assert_eq!(passed, expected, "{from}");
    }
    let strict = Gateway::setup().more_rules(&rate).toml("[server]\ntrusted_proxies = []").start().await;
    let mut passed = 0;
    for number in 0..10 {
        let from = format!("203.0.113.{number}");
        passed += admitted(&strict.anyone(), "/rate/address", 1, &[("X-Forwarded-For", &from)]).await.0;
    }
    assert_eq!(passed, 2, "a rotating X-Forwarded-For of a stranger is one address");
}

#[tokio::test]
async fn all_rates_admit_or_none_is_charged() {
    let two = "{ by = \"rule\", limit = 4, per = \"1m\" }, { by = \"address\", limit = 2, per = \"1m\" }";
    let desk = Gateway::setup().more_rules(&rule("two", two)).start().await;
    let from = |address: &'static str| [("X-Forwarded-For", address)];
    assert_eq!(admitted(&desk.anyone(), "/rate/two", 10, &from("203.0.113.1")).await.0, 2);
    assert_eq!(admitted(&desk.anyone(), "/rate/two", 10, &from("203.0.113.2")).await.0, 2, "refusals used nothing up");
    assert_eq!(admitted(&desk.anyone(), "/rate/two", 1, &from("203.0.113.3")).await.0, 0, "four are four");
}

#[tokio::test]
async fn a_shadow_rate_refuses_nobody_and_is_counted() {
    let rate = "{ by = \"address\", limit = 2, per = \"1m\", mode = \"shadow\" }";
    let desk = Gateway::setup().more_rules(&rule("shadow", rate)).start().await;
    assert_eq!(admitted(&desk.anyone(), "/rate/shadow", 5, &[]).await.0, 5);
    assert_eq!(desk.metric("deskgate_shadow_total", &["rule=\"shadow\"", "verdict=\"deny\""]).await, 3.0);
    desk.logged(&["would be refused with 1429", "2 per 1m by address"]).await;
}

#[tokio::test]
async fn a_reload_forgets_no_count() {
    let desk =
        Gateway::setup().more_rules(&rule("kept", "{ by = \"address\", limit = 3, per = \"1m\" }")).start().await;
    assert_eq!(admitted(&desk.anyone(), "/rate/kept", 3, &[]).await.0, 3);
    let before = desk.logs().matches("\"reloaded\"").count();
    desk.signal("HUP");
    eventually("the reload", || async { (desk.logs().matches("\"reloaded\"").count() > before).then_some(()) }).await;
    assert_eq!(admitted(&desk.anyone(), "/rate/kept", 3, &[]).await.0, 0);
}

#[tokio::test]
async fn row_48_sign_in_endpoints_have_rates_without_being_told() {
    let desk = Gateway::start().await;
    let many = |target: &'static str, count: usize| {
        let desk = &desk;
        async move {
            let mut connection = desk.connect().await;
            for number in 0..count {
                let head = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address());
                connection.send(head.as_bytes()).await;
                let answer = connection.answer().await.expect("an answer");
                if answer.status == 429 {
                    return Some((number, answer));
                }
            }
            None
        }
    };
    let (passed, refused) = many("/api/auth/qrcode", 2000).await.expect("a limit on QR codes");
    assert!((30..2000).contains(&passed), "{passed}");
    refused.expect_code(1429);
    let (passed, _) = many("/api/auth/scan/status?ticket=x", 5000).await.expect("a limit on polls");
    assert!(passed >= 100, "{passed}: people behind one address poll together");
}

#[tokio::test]
async fn rates_of_own_endpoints_can_be_set() {
    let rate = "\n[[endpoint]]\npath = \"/api/auth/verify\"\nrate = [{ by = \"address\", limit = 2, per = \"1m\" }]\n";
    let desk = Gateway::setup().more_rules(rate).start().await;
    let body = serde_json::json!({"token": "x"});
    for expected in [0, 0, 1429] {
        desk.anyone().post_json("/api/auth/verify", &body).await.expect_code(expected);
    }
}

#[tokio::test]
async fn explain_shows_an_exhausted_rate() {
    let files =
        Gateway::setup().more_rules(&rule("spent", "{ by = \"address\", limit = 20, per = \"1m\" }")).written().await;
    for (after, outcome, answer) in [
        ("19", "hit          rate       20 per 1m by address", "forwarded"),
        ("20", "miss         rate", "429 with code 1429, Retry-After 60"),
    ] {
        let output = files.command(&["explain", "GET", "/rate/spent", "--after", after]).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(outcome) && text.contains(answer), "{after}: {text}");
    }
}

#[tokio::test]
async fn agents_and_one_time_passwords_have_rates_without_being_told() {
    let desk = Gateway::start().await;
    let alice = desk.sign_in("u1001").await;
    let login = json!({ "employee_id": "z9999" });
    for (client, target, body, most) in [
        (desk.anyone(), "/api/agents/login", &login, 60),
        (alice.clone(), "/api/agents/password", &json!({ "new_password": "x" }), 10),
        (alice.clone(), "/api/auth/otp-setup", &json!({}), 10),
        (alice.clone(), "/api/auth/otp-bind", &json!({ "code": 1 }), 20),
        (alice.clone(), "/api/auth/otp-verify", &json!({ "code": 1 }), 20),
    ] {
        let mut passed = 0;
        let refused = loop {
            let answer = client.post_json(target, body).await;
            if answer.status == 429 {
                break answer;
            }
            passed += 1;
            assert!(passed <= most, "{target} has no limit");
        };
        assert!(refused.header("ratelimit-policy").is_some(), "a rate, not a lock: {}", refused.describe());
        assert_eq!(passed, most, "{target}");
    }
}

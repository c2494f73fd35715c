//! Rate limits: sliding windows, accurate Retry-After, keys by trusted address and account.

use crate::support::*;

fn rule(name: &str, rate: &str) -> String {
    format!(
        "\n[[rule]]\nname = \"{name}\"\npath = \"/rate/{name}\"\nupstream = \"helpdesk\"\npublic = true\nrate = [{rate}]\n"
    )
}

/// Sends `count` requests; returns the number admitted and the first refusal.
async fn admitted(client: &Client, target: &str, count: usize, headers: &[(&str, &str)]) -> (usize, Option<Response>) {
    let mut passed = 0;
    let mut refused = None;
    for _ in 0..count {
        let response = client.send("GET", target, headers, b"").await;
        if response.status == 200 {
            passed += 1;
        } else if refused.is_none() {
            refused = Some(response.expect_code(1429));
        }
    }
    (passed, refused)
}

#[tokio::test]
async fn requests_over_the_rate_are_1429_with_retry_after() {
    let desk =
        Gateway::setup().more_rules(&rule("minute", "{ by = \"address\", limit = 20, per = \"1m\" }")).start().await;
    let (passed, refused) = admitted(&desk.anonymous(), "/rate/minute", 30, &[]).await;
    assert_eq!(passed, 20);
    let refused = refused.expect("a refusal");
    let wait: u64 = refused.header("retry-after").expect("Retry-After").parse().expect("seconds");
    assert!((50..=61).contains(&wait), "{wait}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"address\";q=20;w=60"));
    assert_eq!(refused.header("ratelimit"), Some(format!("\"address\";r=0;t={wait}").as_str()));
    assert_eq!(desk.upstream.requests().len(), 20, "refused requests reach no upstream");
    let rate = |verdict| desk.metric("deskgate_rate_total", verdict);
    assert_eq!(rate(&["rule=\"minute\"", "verdict=\"allow\""]).await, 20.0);
    assert_eq!(rate(&["rule=\"minute\"", "verdict=\"deny\""]).await, 10.0);
    let id = refused.header("x-request-id").expect("an id").to_owned();
    desk.wait_for_log(&[&id, "rate limit exceeded: 20 per 1m by address"]).await;
}

#[tokio::test]
async fn retry_after_is_accurate() {
    let desk = Gateway::setup().more_rules(&rule("short", "{ by = \"rule\", limit = 3, per = \"2s\" }")).start().await;
    let (passed, refused) = admitted(&desk.anonymous(), "/rate/short", 5, &[]).await;
    assert_eq!(passed, 3);
    let wait: u64 = refused.expect("a refusal").header("retry-after").expect("it").parse().expect("seconds");
    assert!((1..=2).contains(&wait), "{wait}");
    // Refused requests are not charged, so polling does not extend the wait.
    let start = std::time::Instant::now();
    eventually("an admitted request", || async {
        (desk.anonymous().get("/rate/short").await.status == 200).then_some(())
    })
    .await;
    let took = start.elapsed().as_secs_f64();
    assert!(took <= wait as f64 + 0.5, "waited {took} s instead of {wait} s");
}

#[tokio::test]
async fn rates_count_per_key() {
    let rules = [
        rule("employee", "{ by = \"employee\", limit = 2, per = \"1m\" }"),
        rule("role", "{ by = \"role\", limit = 2, per = \"1m\" }"),
        rule("session", "{ by = \"session\", limit = 2, per = \"1m\" }"),
        rule("all", "{ by = \"rule\", limit = 2, per = \"1m\" }"),
    ]
    .concat();
    let desk = Gateway::setup().more_rules(&rules).start().await;
    // The same employee twice, another employee with the same role, and one with another role.
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
async fn rate_key_is_the_trusted_address_or_ipv6_prefix() {
    let rate = rule("address", "{ by = \"address\", limit = 2, per = \"1m\" }");
    let trusting = Gateway::setup().more_rules(&rate).start().await;
    let anonymous = trusting.anonymous();
    for (from, expected) in [
        ("2001:db8:1:2::1", 2),
        ("2001:db8:1:2:ffff::9", 0),
        ("2001:db8:1:3::1", 2),
        ("203.0.113.7", 2),
        ("::ffff:203.0.113.7", 0),
        ("203.0.113.8", 2),
    ] {
        let (passed, _) = admitted(&anonymous, "/rate/address", 3, &[("X-Forwarded-For", from)]).await;
        assert_eq!(passed, expected, "{from}");
    }
    let strict = Gateway::setup().more_rules(&rate).toml("[server]\ntrusted_proxies = []").start().await;
    let mut passed = 0;
    for number in 0..10 {
        let from = format!("203.0.113.{number}");
        passed += admitted(&strict.anonymous(), "/rate/address", 1, &[("X-Forwarded-For", &from)]).await.0;
    }
    assert_eq!(passed, 2, "X-Forwarded-For of an untrusted peer is ignored");
}

#[tokio::test]
async fn many_networks_of_one_ipv6_site_share_a_rate() {
    let desk =
        Gateway::setup().more_rules(&rule("site", "{ by = \"address\", limit = 2, per = \"1m\" }")).start().await;
    let anonymous = desk.anonymous();
    let one_request =
        async |address: &str| admitted(&anonymous, "/rate/site", 1, &[("X-Forwarded-For", address)]).await;
    // One request of each of twenty /64 in each of five /56 of one /48.
    let mut passed = Vec::new();
    for block in 0..5 {
        let mut passed_of_block = 0;
        for network in 0..20 {
            let (passed, refused) = one_request(&format!("2001:db8:1:{block:x}{network:02x}::1")).await;
            passed_of_block += passed;
            if let Some(refused) = refused {
                assert_eq!(refused.header("ratelimit-policy"), Some("\"address\";q=2;w=60"), "the rule's own limit");
                assert!(refused.header("retry-after").is_some());
            }
        }
        passed.push(passed_of_block);
    }
    assert_eq!(passed, [16, 16, 16, 16, 0], "8 times the limit for a /56, 32 times for the /48");
    for (address, expected) in [("2001:db8:2::1", 1), ("203.0.113.7", 1), ("2001:db8:1:900::1", 0)] {
        assert_eq!(one_request(address).await.0, expected, "{address}");
    }
}

/// The statuses of `count` requests with this token from this address.
async fn answers(desk: &Gateway, address: &str, token: &str, count: usize) -> Vec<u16> {
    let client = desk.with_token(token).with_header("X-Forwarded-For", address);
    let mut codes = Vec::new();
    for _ in 0..count {
        let response = client.get("/api/desk/tickets").await;
        codes.push(response.status);
    }
    codes
}

#[tokio::test]
async fn junk_tokens_of_an_address_are_limited() {
    let desk = Gateway::with("[limits]\ninvalid_tokens = 3").await;
    let signed_in = desk.sign_in("u1001").await;
    let (header, rest) = signed_in.token().split_once('.').expect("a header");
    let (claims, _) = rest.split_once('.').expect("claims");
    let office = "203.0.113.7";
    let forged = [
        "junk".to_owned(),
        format!("{header}.{claims}.{}", base64url([7; 64])),
        format!("{header}.{}.{}", base64url("{}"), base64url([7; 64])),
        format!("{}.{claims}.", base64url("{\"alg\":\"none\"}")),
    ];
    let mut statuses = Vec::new();
    for token in &forged {
        statuses.extend(answers(&desk, office, token, 1).await);
    }
    assert_eq!(statuses, [401, 401, 401, 429]);
    let junk = desk.with_token("junk").with_header("X-Forwarded-For", office);
    let refused = junk.get("/api/auth/me").await.expect_code(1429);
    let wait: u64 = refused.header("retry-after").expect("Retry-After").parse().expect("seconds");
    assert!((1..=61).contains(&wait), "{wait}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"address\";q=3;w=60"));
    junk.handshake("/ws/employee").expect_refused().await.expect_code(1429);
    assert_eq!(desk.metric("deskgate_limit_reached_total", &["limit=\"invalid_tokens\""]).await, 3.0);
    assert!(desk.upstream.requests().is_empty());

    // Only junk of this address is refused.
    let neighbour = desk.sign_in("a2001").await;
    assert_eq!(answers(&desk, office, signed_in.token(), 2).await, [200; 2]);
    assert_eq!(answers(&desk, office, neighbour.token(), 2).await, [200; 2], "the first use of a token");
    junk.get("/public/page").await.expect_status(200);
    desk.anonymous().with_header("X-Forwarded-For", office).get("/api/auth/me").await.expect_code(1001);
    assert_eq!(answers(&desk, "203.0.113.8", "junk", 1).await, [401]);
}

#[tokio::test]
async fn tokens_that_were_valid_once_do_not_count_as_junk() {
    let fixture = Fixture::with("[limits]\ninvalid_tokens = 3").await;
    let office = "203.0.113.7";
    let logged_out = fixture.desk.sign_in("u1001").await;
    logged_out.post("/api/auth/logout").await.expect_code(0);
    let claims = json!({ "iat": 1_000_000, "nbf": 1_000_000, "exp": 1_028_800 });
    let mut expired = fixture.claims.clone();
    for (name, value) in claims.as_object().expect("an object") {
        expired[name] = value.clone();
    }
    for (case, token) in [
        ("expired", fixture.signed(&fixture.header, &expired)),
        ("logged out", logged_out.token().to_owned()),
        ("of a removed key", fixture.signed(&fixture.header_with("kid", json!("removed")), &fixture.claims)),
        ("of an earlier public URL", fixture.signed(&fixture.header, &fixture.claims_with("iss", json!("http://old")))),
    ] {
        assert_eq!(answers(&fixture.desk, office, &token, 10).await, [401; 10], "{case}");
    }
    assert_eq!(answers(&fixture.desk, office, "junk", 4).await, [401, 401, 401, 429], "nothing has been counted");
}

#[tokio::test]
async fn junk_tokens_are_limited_by_default_and_can_be_unlimited() {
    for (settings, expected) in [("", Some(600)), ("[limits]\ninvalid_tokens = 0", None)] {
        let desk = Gateway::with(settings).await;
        let mut connection = desk.connect().await;
        let mut limited = None;
        for number in 0..610 {
            let head =
                format!("GET /api/auth/me HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer junk\r\n\r\n", desk.address());
            connection.send(head.as_bytes()).await;
            if connection.response().await.expect("a response").status == 429 {
                limited = limited.or(Some(number));
            }
        }
        assert_eq!(limited, expected, "{settings}");
    }
}

#[tokio::test]
async fn refused_requests_charge_no_rate() {
    let two = "{ by = \"rule\", limit = 4, per = \"1m\" }, { by = \"address\", limit = 2, per = \"1m\" }";
    let desk = Gateway::setup().more_rules(&rule("two", two)).start().await;
    let from = |address: &'static str| [("X-Forwarded-For", address)];
    assert_eq!(admitted(&desk.anonymous(), "/rate/two", 10, &from("203.0.113.1")).await.0, 2);
    assert_eq!(
        admitted(&desk.anonymous(), "/rate/two", 10, &from("203.0.113.2")).await.0,
        2,
        "refused requests were charged"
    );
    assert_eq!(
        admitted(&desk.anonymous(), "/rate/two", 1, &from("203.0.113.3")).await.0,
        0,
        "the fourth request is admitted"
    );
}

#[tokio::test]
async fn shadow_rate_counts_without_refusing() {
    let rate = "{ by = \"address\", limit = 2, per = \"1m\", mode = \"shadow\" }";
    let desk = Gateway::setup().more_rules(&rule("shadow", rate)).start().await;
    assert_eq!(admitted(&desk.anonymous(), "/rate/shadow", 5, &[]).await.0, 5);
    assert_eq!(desk.metric("deskgate_shadow_total", &["rule=\"shadow\"", "verdict=\"deny\""]).await, 3.0);
    desk.wait_for_log(&["would be refused with 1429", "2 per 1m by address"]).await;
}

#[tokio::test]
async fn rate_counts_survive_a_reload() {
    let desk =
        Gateway::setup().more_rules(&rule("kept", "{ by = \"address\", limit = 3, per = \"1m\" }")).start().await;
    assert_eq!(admitted(&desk.anonymous(), "/rate/kept", 3, &[]).await.0, 3);
    let before = desk.logs().matches("\"reloaded\"").count();
    desk.signal("HUP");
    eventually("the reload", || async { (desk.logs().matches("\"reloaded\"").count() > before).then_some(()) }).await;
    assert_eq!(admitted(&desk.anonymous(), "/rate/kept", 3, &[]).await.0, 0);
}

#[tokio::test]
async fn sign_in_endpoints_have_default_rates() {
    const AT_ONCE: usize = 500;
    let desk = Gateway::start().await;
    let many = |target: &'static str, count: usize| {
        let desk = &desk;
        async move {
            let mut connection = desk.connect().await;
            let head = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address());
            for number in 0..count {
                // Many at once, because a slow machine would not exceed a rate of hundreds a second with one after the other.
                if number % AT_ONCE == 0 {
                    connection.send(head.repeat(AT_ONCE).as_bytes()).await;
                }
                let response = connection.response().await.expect("a response");
                if response.status == 429 {
                    return Some((number, response));
                }
            }
            None
        }
    };
    let (passed, refused) = many("/api/auth/qrcode", 2000).await.expect("a default rate for QR codes");
    assert!((30..2000).contains(&passed), "{passed}");
    refused.expect_code(1429);
    let (passed, _) = many("/api/auth/scan/status?ticket=x", 5000).await.expect("a default rate for polls");
    assert!(passed >= 100, "{passed} polls admitted: clients behind one address share the rate");
}

#[tokio::test]
async fn endpoint_rates_are_configurable() {
    let rate = "\n[[endpoint]]\npath = \"/api/auth/verify\"\nrate = [{ by = \"address\", limit = 2, per = \"1m\" }]\n";
    let desk = Gateway::setup().more_rules(rate).start().await;
    let body = serde_json::json!({"token": "x"});
    for expected in [0, 0, 1429] {
        desk.anonymous().post_json("/api/auth/verify", &body).await.expect_code(expected);
    }
}

#[tokio::test]
async fn explain_shows_exhausted_rates() {
    let files = Gateway::setup()
        .more_rules(&rule("spent", "{ by = \"address\", limit = 20, per = \"1m\" }"))
        .write_files()
        .await;
    for (after, outcome, response) in [
        ("19", "hit          rate       20 per 1m by address", "forwarded"),
        ("20", "miss         rate", "429 with code 1429, Retry-After 60"),
    ] {
        let output = files.command(&["explain", "GET", "/rate/spent", "--after", after]).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(outcome) && text.contains(response), "{after}: {text}");
    }
}

#[tokio::test]
async fn agent_and_otp_endpoints_have_default_rates() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let login = json!({ "employee_id": "z9999" });
    for (client, target, body, most) in [
        (desk.anonymous(), "/api/agents/login", &login, 60),
        (xiaoming.clone(), "/api/agents/password", &json!({ "new_password": "x" }), 10),
        (xiaoming.clone(), "/api/auth/otp-setup", &json!({}), 10),
        (xiaoming.clone(), "/api/auth/otp-bind", &json!({ "code": 1 }), 20),
        (xiaoming.clone(), "/api/auth/otp-verify", &json!({ "code": 1 }), 20),
    ] {
        let mut passed = 0;
        let refused = loop {
            let response = client.post_json(target, body).await;
            if response.status == 429 {
                break response;
            }
            passed += 1;
            assert!(passed <= most, "{target} has no default rate");
        };
        assert!(refused.header("ratelimit-policy").is_some(), "a rate, not a lock: {}", refused.describe());
        assert_eq!(passed, most, "{target}");
    }
}

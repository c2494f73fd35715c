//! The client's address behind trusted proxies: no client can choose it, whatever it sends.

use crate::support::*;

const RULES: &str = r#"
[[rule]]
name = "from this machine"
path = "/local/{*rest}"
upstream = "helpdesk"
public = true
networks = ["127.0.0.0/8", "10.0.0.0/8"]

[[rule]]
name = "socket from this machine"
path = "/local-socket"
methods = ["GET"]
upstream = "helpdesk"
public = true
networks = ["127.0.0.0/8", "10.0.0.0/8"]
"#;

fn setup(client_address: &str) -> Setup {
    Gateway::setup().more_rules(RULES).toml(&format!("[server]\nclient_address = \"{client_address}\""))
}

/// Headers with these lines of `X-Forwarded-For`.
fn forwarded<'a>(lines: &[&'a str]) -> Vec<(&'static str, &'a str)> {
    lines.iter().map(|line| ("X-Forwarded-For", *line)).collect()
}

#[tokio::test]
async fn unreadable_forwarded_for_of_a_trusted_proxy_is_1400_on_every_lane() {
    for client_address in ["first", "rightmost"] {
        let desk = setup(client_address).start().await;
        let administrator = desk.sign_in("m5001").await;
        for lines in [
            &["garbage, 203.0.113.9"][..],
            &["203.0.113.9, garbage"],
            &["203.0.113.9", "garbage"],
            &["garbage"],
            &["unknown"],
            &["_hidden, 203.0.113.9"],
            &[""],
            &[",,"],
            &["203.0.113.9;10.0.0.1"],
        ] {
            let case = format!("{client_address}, {lines:?}");
            let headers = forwarded(lines);
            for (lane, method, path) in [
                ("encoded head", "GET", "/local/x"),
                ("Pingora's proxy", "POST", "/local/x"),
                ("own endpoint", "GET", "/api/auth/me"),
                ("admin endpoint", "GET", "/api/admin/roles/user-roles"),
                ("development route", "GET", "/api/dev/users"),
            ] {
                let response = administrator.send(method, path, &headers, b"").await;
                assert_eq!(response.code(), 1400, "{case}, {lane}: {}", response.describe());
                let message = response.message();
                assert!(message.contains("X-Forwarded-For") && message.contains("address"), "{case}: {message}");
                assert!(!message.contains("missing"), "{case}: {message}");
            }
            let handshake =
                headers.iter().fold(administrator.handshake("/local-socket"), |handshake, (name, value)| {
                    handshake.header(name, value)
                });
            handshake.open().await.err().unwrap_or_else(|| panic!("{case}: a socket")).expect_code(1400);
        }
        assert!(desk.upstream.requests().is_empty(), "{:#?}", desk.upstream.requests());
    }
}

#[tokio::test]
async fn rightmost_finds_the_client_whatever_it_sends() {
    let desk = setup("rightmost").toml("[server]\ntrusted_proxies = [\"127.0.0.0/8\", \"10.9.0.0/16\"]").start().await;
    for (case, lines, client) in [
        ("appended by the proxy", &["127.0.0.1, 203.0.113.9"][..], "203.0.113.9"),
        ("a second proxy", &["10.1.1.1, 203.0.113.9, 10.9.0.1"], "203.0.113.9"),
        ("a line of its own, as HAProxy adds it", &["127.0.0.1", "203.0.113.9"], "203.0.113.9"),
        ("with a port", &["127.0.0.1, 203.0.113.9:4711"], "203.0.113.9"),
        ("IPv6 with a port", &["127.0.0.1, [2001:db8::9]:4711, 10.9.0.1"], "2001:db8::9"),
    ] {
        let headers = forwarded(lines);
        let response = desk.anonymous().send("GET", "/local/x", &headers, b"").await;
        assert_eq!(response.code(), 1003, "{case}: {}", response.describe());
        let handshake = headers.iter().fold(desk.anonymous().handshake("/local-socket"), |handshake, (name, value)| {
            handshake.header(name, value)
        });
        handshake.open().await.err().unwrap_or_else(|| panic!("{case}: a socket")).expect_code(1003);
        assert!(desk.upstream.requests().is_empty(), "{case}");
        desk.anonymous().send("GET", "/public/x", &headers, b"").await.expect_status(200);
        let seen = desk.upstream.only_request();
        assert_eq!(seen.header("x-forwarded-for"), Some(format!("{client}, 127.0.0.1").as_str()), "{case}");
        desk.upstream.clear_requests();
    }
    for lines in [&["10.1.1.1"][..], &["203.0.113.9, 10.1.1.1"], &["10.9.0.2, 10.9.0.1"]] {
        desk.anonymous().send("GET", "/local/x", &forwarded(lines), b"").await.expect_status(200);
    }
}

#[tokio::test]
async fn first_is_the_default_and_takes_the_first_address() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    desk.anonymous().send("GET", "/local/x", &forwarded(&["10.1.1.1, 203.0.113.9"]), b"").await.expect_status(200);
    desk.anonymous().send("GET", "/local/x", &forwarded(&["203.0.113.9, 10.1.1.1"]), b"").await.expect_code(1003);
}

#[tokio::test]
async fn forwarded_for_of_an_untrusted_peer_is_ignored() {
    for client_address in ["first", "rightmost"] {
        let desk = setup(client_address).toml("[server]\ntrusted_proxies = []").start().await;
        for lines in [&["203.0.113.9"][..], &["garbage"], &[""]] {
            desk.anonymous().send("GET", "/local/x", &forwarded(lines), b"").await.expect_status(200);
            assert_eq!(desk.upstream.last_request().header("x-forwarded-for"), Some("127.0.0.1"), "{lines:?}");
        }
    }
}

#[tokio::test]
async fn start_and_check_warn_about_networks_that_clients_can_forge() {
    let warning = ["server.client_address", "from this machine", "rightmost"];
    let files = setup("first").write_files().await;
    let output = files.command(&["check"]).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(warning.iter().all(|word| stderr.contains(word)) && stderr.starts_with("warning: "), "{stderr}");
    let desk = setup("first").start().await;
    desk.wait_for_log(&[&["WARN"][..], &warning].concat()).await;

    let condition = "[[rule]]\nname = \"by condition\"\npath = \"/by-condition\"\nupstream = \"helpdesk\"\npublic = true\n\
                     when = \"request.address.startsWith('10.')\"\n";
    let both = setup("first").more_rules(condition).write_files().await;
    let stderr = both.command(&["check"]).await.stderr;
    let stderr = String::from_utf8_lossy(&stderr);
    let names = ["`from this machine`", "`socket from this machine`", "`by condition`"];
    assert!(names.iter().all(|name| stderr.contains(name)), "{stderr}");

    for quiet in [
        setup("rightmost").more_rules(condition),
        setup("first").toml("[server]\ntrusted_proxies = []"),
        Gateway::setup().toml("[server]\nclient_address = \"first\""),
    ] {
        let output = quiet.write_files().await.command(&["check"]).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr.contains("client_address"), "{stderr}");
    }
}

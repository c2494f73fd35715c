//! What may happen once happens once over all gateways that share a store: bind proofs, callbacks, codes, and the number
//! of an employee's WebSockets.

use crate::servers::redis::RedisServer;
use crate::support::*;

const FEW_SOCKETS: &str = "\n[[rule]]\nname = \"few sockets\"\npath = \"/few/socket\"\nupstream = \"helpdesk\"\n\
     signed_in = true\nwebsocket = { max_per_employee = 2 }\n";

/// The path and query of a URL.
fn target(address: &str) -> &str {
    let after_scheme = address.split_once("://").map_or(address, |(_, rest)| rest);
    after_scheme.find('/').map_or("/", |start| &after_scheme[start..])
}

#[tokio::test]
async fn bind_proof_used_on_one_gateway_is_refused_on_the_other() {
    let Fleet { one, two, .. } = &Fleet::with("[bind]\napproval = \"none\"").await;
    let partner = one.phone("wwpartner/p7001");
    partner.oauth2(&one.client_url("h5")).await.expect_status(302);
    let elsewhere = partner.client().at(two);
    let bind = json!({ "employee_id": "u1001" });
    partner.client().post_json("/api/auth/bind", &bind).await.expect_code(0);
    elsewhere.post_json("/api/auth/bind", &bind).await.expect_code(1003);
}

#[tokio::test]
async fn callback_repeated_on_another_gateway_gets_the_same_response() {
    let Fleet { one, two, .. } = &Fleet::with("").await;
    let asked = || one.platform_calls("/cgi-bin/auth/getuserinfo");
    for (case, member) in [("an employee", "u1001"), ("a disabled member", "x8001"), ("a partner", "wwpartner/p7001")] {
        let phone = one.phone(member);
        let callback = phone.authorize(&phone.authorize_url(&one.client_url("h5")).await).await;
        let (here, there) = (phone.client().at(one), phone.client().at(two));
        let before = asked().await;
        // At the same time: whichever comes second waits for the first.
        let (first, second) = tokio::join!(here.get(target(&callback)), there.get(target(&callback)));
        let (first, second) = (first.expect_status(302), second.expect_status(302));
        assert_eq!(first.location(), second.location(), "{case}");
        let third = phone.client().at(two).get(target(&callback)).await;
        assert_eq!(third.location(), first.location(), "{case}: later");
        assert_eq!(asked().await, before + 1, "{case}: the platform was asked once");
        if member == "u1001" {
            let token = fragment_parameter(&first.location(), "token").expect("a token");
            for gateway in [one, two] {
                gateway.with_token(&token).get("/api/auth/me").await.expect_code(0);
            }
        }
    }
}

#[tokio::test]
async fn scan_repeated_on_another_gateway_gets_the_same_response() {
    let Fleet { one, two, .. } = &Fleet::with("").await;
    let browser = one.anonymous();
    let ticket = browser.get("/api/auth/qrcode").await.expect_code(0).data();
    let phone = one.phone("u1001");
    let callback = phone.authorize(ticket["qrcode_url"].as_str().expect("a URL")).await;
    let first = phone.client().get(target(&callback)).await.expect_status(302);
    let cookie = |response: &Response| response.header("set-cookie").expect("a cookie").to_owned();
    let elsewhere = Phone::new(two.anonymous(), "u1001");
    let second = elsewhere.client().get(target(&callback)).await.expect_status(302);
    assert_eq!((second.location(), cookie(&second)), (first.location(), cookie(&first)));

    let form = elsewhere.page(&second.location()).await.form("confirm");
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&form.fields).finish();
    let origin = one.public_url();
    let headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", origin.as_str())];
    elsewhere.client().send("POST", &form.action, &headers, body.as_bytes()).await;
    let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
    let state = browser.get(&poll).await.expect_code(0).data();
    assert_eq!(state["status"], "confirmed", "{state}");
}

#[tokio::test]
async fn code_of_one_way_is_refused_in_another_on_another_gateway() {
    let Fleet { one, two, .. } = &Fleet::with("").await;
    let phone = one.phone("a2001");
    let callback = phone.authorize(&phone.authorize_url(&one.client_url("h5")).await).await;
    let code = query_parameter(&callback, "code").expect("a code");
    let login = |gateway: &Gateway, employee: &str| {
        let (client, body) = (gateway.anonymous(), json!({ "employee_id": employee, "code": code }));
        async move { client.post_json("/api/agents/login", &body).await }
    };
    // Refused, because the code is another employee's; the platform still takes it.
    login(one, "u1001").await.expect_code(1003);
    let refused = phone.client().at(two).get(target(&callback)).await;
    assert_eq!(fragment_parameter(&refused.location(), "error").as_deref(), Some("invalid_code"), "at the redirect");

    let callback = phone.authorize(&phone.authorize_url(&one.client_url("h5")).await).await;
    let code = query_parameter(&callback, "code").expect("a code");
    let response = phone.client().at(two).get(target(&callback)).await;
    assert!(fragment_parameter(&response.location(), "token").is_some(), "{}", response.describe());
    let body = json!({ "employee_id": "a2001", "code": code });
    one.anonymous().post_json("/api/agents/login", &body).await.expect_code(1400);
}

#[tokio::test]
async fn flow_used_on_one_gateway_takes_no_other_code_on_the_other() {
    let Fleet { one, two, .. } = &Fleet::with("").await;
    let phone = one.phone("u1001");
    let url = phone.authorize_url(&one.client_url("h5")).await;
    let (first, second) = (phone.authorize(&url).await, phone.authorize(&url).await);
    let elsewhere = phone.client().at(two);
    let response = phone.client().at(one).get(target(&first)).await;
    assert!(fragment_parameter(&response.location(), "token").is_some(), "{}", response.describe());
    let injected = elsewhere.get(target(&second)).await;
    assert!(injected.status != 302 || fragment_parameter(&injected.location(), "token").is_none());
}

#[tokio::test]
async fn websockets_per_employee_are_limited_over_all_gateways_and_free_when_one_dies() {
    let store = crate::servers::redis::standalone();
    let mut fleet = Fleet::start(&store, |setup| setup.more_rules(FEW_SOCKETS)).await;
    let xiaoming = fleet.one.sign_in("u1001").await;
    let here = xiaoming.websocket("/few/socket").await;
    let there = xiaoming.at(&fleet.two).websocket("/few/socket").await;
    for gateway in fleet.gateways() {
        xiaoming.at(gateway).handshake("/few/socket").expect_refused().await.expect_code(1429);
    }
    let agent = fleet.two.sign_in("a2001").await.websocket("/few/socket").await;
    drop(here);
    let elsewhere = xiaoming.at(&fleet.two);
    let second =
        eventually("the slot of a closed WebSocket", || async { elsewhere.handshake("/few/socket").open().await.ok() })
            .await;
    xiaoming.handshake("/few/socket").expect_refused().await.expect_code(1429);
    fleet.two.sigkill();
    let mut open = Vec::new();
    for _ in 0..2 {
        let freed =
            eventually("the slots of a dead gateway", || async { xiaoming.handshake("/few/socket").open().await.ok() });
        open.push(freed.await);
    }
    xiaoming.handshake("/few/socket").expect_refused().await.expect_code(1429);
    drop((there, agent, second, open));
}

#[tokio::test]
async fn nothing_is_claimed_while_the_store_is_away() {
    let mut server = RedisServer::start(&[]);
    let fleet =
        Fleet::start(&server.url(), |setup| setup.toml("[bind]\napproval = \"none\"\n[store]\ntimeout = \"500ms\""))
            .await;
    let one = &fleet.one;
    let partner = one.phone("wwpartner/p7001");
    partner.oauth2(&one.client_url("h5")).await.expect_status(302);
    let phone = one.phone("u1001");
    let callback = phone.authorize(&phone.authorize_url(&one.client_url("h5")).await).await;
    let asked = one.platform_calls("/cgi-bin/auth/getuserinfo").await;
    server.kill();
    for gateway in fleet.gateways() {
        let refused = phone.client().at(gateway).get(target(&callback)).await;
        let told = ["error", "error_code", "token"].map(|name| fragment_parameter(&refused.location(), name));
        assert_eq!(told, [Some("temporarily_unavailable".to_owned()), Some("1503".to_owned()), None]);
        let bind = json!({ "employee_id": "u1001" });
        partner.client().at(gateway).post_json("/api/auth/bind", &bind).await.expect_code(1503);
    }
    assert_eq!(one.platform_calls("/cgi-bin/auth/getuserinfo").await, asked, "the platform was not asked");
}

//! Signing in: each step may reach another gateway.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::fleet::Fleet;
use crate::servers::redis;
use crate::support::*;

#[tokio::test]
async fn qr_code_of_one_gateway_is_scanned_at_another_confirmed_at_a_third_and_polled_anywhere() {
    let fleet = Fleet::on(&redis::cluster(), 3, "").await;
    let [first, second, third] = &fleet.gateways[..] else { panic!("three gateways") };
    let browser = first.anonymous();
    let ticket = browser.get("/api/auth/qrcode").await.expect_code(0).data();
    let url = ticket["qrcode_url"].as_str().expect("a URL");

    let scanning = second.phone("u1001");
    let page = scanning.scan_to_page(url).await;
    let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
    assert_eq!(browser.get(&poll).await.expect_code(0).data()["status"], "scanned");

    let long_poll = format!("{poll}&wait=20");
    let waiting = browser.get(&long_poll);
    let confirming = third.phone("u1001");
    confirming.client().use_jar(scanning.client().jar());
    let (state, _) = tokio::join!(waiting, confirming.tap(&page, "confirm"));
    let state = state.expect_code(0).data();
    assert_eq!(state["status"], "confirmed", "{state}");
    let token = state["token"].as_str().expect("a token");
    for gateway in &fleet.gateways {
        gateway.with_token(token).get("/api/auth/me").await.expect_code(0);
    }
}

#[tokio::test]
async fn flow_of_one_gateway_ends_at_another() {
    let fleet = Fleet::start().await;
    let [first, second] = &fleet.gateways[..] else { panic!("two gateways") };
    let phone = first.phone("a2001");
    let page = first.client_url("itagent");
    let encoded: String = url::form_urlencoded::byte_serialize(page.as_bytes()).collect();
    let answer =
        phone.client().get(&format!("/api/auth/oauth2/url?redirect_uri={encoded}")).await.expect_code(0).data();
    let callback = phone.returned_to(answer["authorize_url"].as_str().expect("a URL")).await;
    let query = callback.split_once('?').map_or("", |(_, query)| query).to_owned();
    let there = second.anonymous();
    there.use_jar(phone.client().jar());
    let location = there.get(&format!("/api/auth/oauth2/callback?{query}")).await.expect_status(302).location();
    let token = fragment_parameter(&location, "token").unwrap_or_else(|| panic!("no token in {location}"));
    first.with_token(&token).get("/api/auth/me").await.expect_code(0);
}

#[tokio::test]
async fn sign_ins_that_race_the_disabling_of_their_employee_on_the_other_gateway_lose() {
    let fleet = Fleet::start().await;
    for _ in 0..5 {
        let (is_disabled, signed_in) = (AtomicBool::new(false), AtomicUsize::new(0));
        // The last ones overlap with the command.
        let sign_in = async || {
            let mut tokens = Vec::new();
            while !is_disabled.load(Ordering::Relaxed) {
                let login = json!({ "employee_id": "u1001" });
                let response = fleet.gateways[1].anonymous().post_json("/api/dev/login", &login).await;
                if response.code() == 0 {
                    signed_in.fetch_add(1, Ordering::Relaxed);
                    tokens.push(response.data()["token"].as_str().expect("a token").to_owned());
                }
            }
            tokens
        };
        let disable = async {
            eventually("sign-ins", || async { (signed_in.load(Ordering::Relaxed) >= 9).then_some(()) }).await;
            fleet.gateways[0].command(&["employee", "disable", "u1001"]).await.expect_success();
            is_disabled.store(true, Ordering::Relaxed);
        };
        let (first, second, third, ()) = tokio::join!(sign_in(), sign_in(), sign_in(), disable);
        for tokens in [first, second, third] {
            for token in tokens.iter().rev().take(10) {
                let client = fleet.gateways[0].with_token(token);
                eventually("a refusal", || async { (client.get("/api/auth/me").await.status == 401).then_some(()) })
                    .await;
            }
        }
        fleet.gateways[0].command(&["employee", "enable", "u1001"]).await.expect_success();
    }
}

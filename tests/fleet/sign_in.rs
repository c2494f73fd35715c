//! Signing in: each step may reach another gateway.

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

//! GET /api/auth/qrcode: a ticket for the browser and a QR code for the phone; the code does not reveal the ticket.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use url::Url;

use crate::support::*;

#[tokio::test]
async fn qrcode_returns_ticket_url_and_image() {
    let desk = Gateway::start().await;
    let data = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();

    assert!(data["ticket"].as_str().is_some_and(|ticket| ticket.len() >= 22), "less than 128 bits: {data}");
    assert!(data["qrcode_url"].as_str().is_some_and(|url| Url::parse(url).is_ok()), "{data}");
    let seconds = data["expires_in"].as_i64().expect("an integer number of seconds");
    assert!((170..=180).contains(&seconds), "the default lifetime is 180 s, not {seconds}");
    let until = OffsetDateTime::parse(data["expires_at"].as_str().expect("a time"), &Rfc3339).expect("ISO 8601");
    let left = (until - OffsetDateTime::now_utc()).whole_seconds();
    assert!((seconds - 10..=seconds + 1).contains(&left), "expires_at says {left} s, expires_in {seconds} s");
}

#[tokio::test]
async fn qrcode_image_is_a_square_png() {
    let desk = Gateway::start().await;
    let data = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();

    let picture = STANDARD.decode(data["qrcode_png_base64"].as_str().expect("a picture")).expect("base64");
    let mut reader = png::Decoder::new(std::io::Cursor::new(picture)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("pixels");
    assert_eq!(info.width, info.height, "a QR code is square");
    assert!(info.width >= 100, "too small to scan: {} pixels", info.width);
    assert!(pixels.contains(&0) && pixels.iter().any(|pixel| *pixel != 0), "the image has two colours");
}

#[tokio::test]
async fn qrcode_url_leads_to_the_platform_and_back_to_the_callback() {
    let desk = Gateway::start().await;
    let data = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();

    let url = Url::parse(data["qrcode_url"].as_str().expect("a URL")).expect("a URL");
    assert_eq!(url.fragment(), Some("wechat_redirect"));
    assert_eq!(url.port(), Some(desk.platform_address().port()), "the simulated platform");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["appid", "redirect_uri", "response_type", "scope", "state"],
        "the parameter order of the specification"
    );
    assert_eq!(pairs[0].1, "wwdemo");
    assert_eq!(pairs[1].1, format!("{}/api/auth/oauth2/callback", desk.public_url()));
    assert_eq!((pairs[2].1.as_str(), pairs[3].1.as_str()), ("code", "snsapi_base"));
    let state = &pairs[4].1;
    assert!(state.starts_with("qr") && state.len() <= 128, "{state}");
    assert!(
        state.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "characters that the platform does not allow: {state}"
    );
}

#[tokio::test]
async fn qrcode_url_does_not_contain_the_ticket() {
    let desk = Gateway::with("[qr]\nconfirm = \"auto\"").await;
    let data = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let (ticket, url) = (data["ticket"].as_str().expect("a ticket"), data["qrcode_url"].as_str().expect("a URL"));
    assert!(!url.contains(ticket), "the ticket is in the QR code");

    let state = query_parameter(url, "state").expect("a state");
    desk.phone("u1001").scan(url).await;
    for guess in [state.as_str(), &state[2..]] {
        let seen = desk.anonymous().get(&format!("/api/auth/scan/status?ticket={guess}")).await.expect_code(0).data();
        assert_eq!(seen["status"], "expired", "polled with {guess}");
        assert!(seen["token"].is_null(), "polled with {guess}");
    }
}

#[tokio::test]
async fn tickets_are_unique() {
    let desk = Gateway::start().await;
    let (mut tickets, mut states) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..20 {
        let data = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
        tickets.insert(data["ticket"].as_str().expect("a ticket").to_owned());
        states.insert(query_parameter(data["qrcode_url"].as_str().expect("a URL"), "state"));
    }
    assert_eq!((tickets.len(), states.len()), (20, 20));
}

#[tokio::test]
async fn ticket_lifetime_is_configurable() {
    let desk = Gateway::with("[ticket]\nlifetime = \"30s\"").await;
    let data = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    assert!((20..=30).contains(&data["expires_in"].as_i64().expect("seconds")), "{data}");
}

#[tokio::test]
async fn qrcode_url_has_the_configured_agent_id() {
    let desk = Gateway::with("[platform]\nagent_id = \"1000002\"").await;
    let data = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let url = data["qrcode_url"].as_str().expect("a URL");
    assert!(url.ends_with("&agentid=1000002#wechat_redirect"), "{url}");
}

//! The hosted sign-in page.

use super::*;

const BACK: &str = "https://desk.example/cb?a=1";

fn login_url(simulator: &SimulatedPlatform, path: &str, changes: Pairs<'_>) -> Url {
    let mut pairs = vec![
        ("login_type", "CorpApp"),
        ("appid", CORP_ID),
        ("agentid", AGENT_ID),
        ("redirect_uri", BACK),
        ("state", "web_login@gyoss9"),
        ("lang", "en"),
    ];
    for (name, value) in changes {
        pairs.retain(|(known, _)| known != name);
        if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    let mut url = simulator.api_url().join(path).unwrap();
    url.query_pairs_mut().extend_pairs(pairs);
    url
}

/// Returns the scan's key from a page.
fn key_of(page: &Seen) -> String {
    let start = page.text.find("qrImg?key=").unwrap_or_else(|| panic!("no code: {}", page.text)) + "qrImg?key=".len();
    page.text[start..].split('"').next().unwrap().to_owned()
}

async fn confirm(simulator: &SimulatedPlatform, key: &str, answer: Pairs<'_>) -> Seen {
    let mut url = simulator.api_url().join(path::QR_CONFIRM).unwrap();
    url.query_pairs_mut().append_pair("k", key).extend_pairs(answer);
    open(url).await
}

async fn poll(simulator: &SimulatedPlatform, query: Pairs<'_>) -> (String, Value) {
    let mut url = simulator.api_url().join(path::QR_POLL).unwrap();
    url.query_pairs_mut().extend_pairs(query);
    let seen = open(url).await;
    let (function, rest) = seen.text.split_once('(').unwrap();
    (function.to_owned(), serde_json::from_str(rest.strip_suffix(')').unwrap()).unwrap())
}

async fn status(simulator: &SimulatedPlatform, key: &str) -> String {
    poll(simulator, &[("key", key)]).await.1["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_scan_is_shown_then_scanned_then_approved() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    for path in [path::QR_CONNECT, path::QR_LOGIN] {
        let page = open(login_url(&simulator, path, &[])).await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(!page.text.contains("<script") && page.text.contains("Scan to sign in"), "{}", page.text);
        let key = key_of(&page);
        let again = async || open(login_url(&simulator, path, &[("key", &key)])).await;
        assert_eq!(status(&simulator, &key).await, "QRCODE_SCAN_NEVER");
        assert!(again().await.text.contains("Scan this code"));

        let phone = confirm(&simulator, &key, &[]).await;
        assert!(phone.text.contains("Who is scanning?") && phone.text.contains("desk.example"));
        assert_eq!(status(&simulator, &key).await, "QRCODE_SCAN_ING");
        assert!(again().await.text.contains("Confirm on your phone"));

        assert!(confirm(&simulator, &key, &[("as", "u1001")]).await.text.contains("Signed in"));
        let (function, answer) = poll(&simulator, &[("key", &key), ("callback", "jsonp12")]).await;
        assert_eq!((function.as_str(), &answer["status"]), ("jsonp12", &json!("QRCODE_SCAN_SUCC")));
        let code = answer["auth_code"].as_str().unwrap();
        let expected = format!("{BACK}&code={code}&state=web_login%40gyoss9");
        assert_eq!(again().await.location(), expected);
        assert!(confirm(&simulator, &key, &[("as", "deny")]).await.text.contains("Declined"));
        assert_eq!(again().await.location(), expected, "an answered scan keeps its answer");
        let answer = call(&simulator, path::USER_INFO, &[("access_token", &token), ("code", code)]).await;
        assert_eq!(answer["userid"], "u1001");
    }
}

#[tokio::test]
async fn a_scan_can_be_declined_or_expire() {
    let (simulator, clock) = simulator().await;
    let show = async || key_of(&open(login_url(&simulator, path::QR_LOGIN, &[])).await);
    let key = show().await;
    confirm(&simulator, &key, &[("as", "deny")]).await;
    assert_eq!(status(&simulator, &key).await, "QRCODE_SCAN_FAIL");
    let seen = open(login_url(&simulator, path::QR_LOGIN, &[("key", &key)])).await;
    assert_eq!(seen.location(), format!("{BACK}&state=web_login%40gyoss9"), "declined: the state alone");

    simulator.switches(|switches| switches.deny_at_scan = true);
    let key = show().await;
    confirm(&simulator, &key, &[("as", "u1001")]).await;
    assert_eq!(status(&simulator, &key).await, "QRCODE_SCAN_FAIL", "deny_at_scan");

    let key = show().await;
    clock.advance(Duration::from_secs(300));
    assert_eq!(status(&simulator, &key).await, "QRCODE_SCAN_ERR", "expired");
    assert_eq!(confirm(&simulator, &key, &[("as", "u1001")]).await.status, StatusCode::NOT_FOUND);
    let page = open(login_url(&simulator, path::QR_LOGIN, &[("key", &key)])).await;
    assert!(page.text.contains("has expired") && !page.text.contains(&format!("&amp;key={key}\">")), "{}", page.text);
    assert_eq!(status(&simulator, "never").await, "QRCODE_SCAN_ERR", "unknown");
}

#[tokio::test]
async fn a_member_outside_the_visible_range_cannot_scan() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.visible_range = [(AGENT_ID.to_owned(), vec!["a2001".to_owned()])].into());
    let key = key_of(&open(login_url(&simulator, path::QR_LOGIN, &[])).await);
    let refused = confirm(&simulator, &key, &[("as", "u1001")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.text.contains("成员不在应用可见范围内"));
    assert_eq!(status(&simulator, &key).await, "QRCODE_SCAN_NEVER");
    assert_eq!(open(login_url(&simulator, path::QR_LOGIN, &[("as", "u1001")])).await.status, StatusCode::FORBIDDEN);
    let seen = open(login_url(&simulator, path::QR_LOGIN, &[("as", "a2001")])).await;
    assert!(seen.location().starts_with("https://desk.example/cb?a=1&code="), "{}", seen.location());
    let seen = open(login_url(&simulator, path::QR_CONNECT, &[("as", "deny")])).await;
    assert_eq!(seen.location(), format!("{BACK}&state=web_login%40gyoss9"));
}

#[tokio::test]
async fn an_invalid_parameter_is_named_and_the_applications_own_domains_apply() {
    let (simulator, _) = simulator().await;
    let table = [
        ("no corporation", path::QR_CONNECT, ("appid", "")),
        ("no application", path::QR_CONNECT, ("agentid", "")),
        ("unknown application", path::QR_LOGIN, ("agentid", "1")),
        ("no address", path::QR_LOGIN, ("redirect_uri", "")),
        ("no kind", path::QR_LOGIN, ("login_type", "")),
        ("a service provider's", path::QR_LOGIN, ("login_type", "ServiceApp")),
        ("unknown member", path::QR_LOGIN, ("as", "z9999")),
    ];
    for (case, path, change) in table {
        let seen = open(login_url(&simulator, path, &[change])).await;
        assert_eq!(seen.status, StatusCode::BAD_REQUEST, "{case}");
        assert!(seen.text.contains(&format!("<code>{}</code>", change.0)), "{case}");
    }
    simulator.trust(&["desk.example"]);
    assert_eq!(open(login_url(&simulator, path::QR_LOGIN, &[])).await.status, StatusCode::OK);
    let seen = open(login_url(&simulator, path::QR_LOGIN, &[("agentid", APPLICATIONS[1].agent_id)])).await;
    assert!(seen.location().starts_with(path::URI_CONFIRM), "another application's domain is not enough");
}

#[tokio::test]
async fn the_qr_code_holds_the_address_of_the_confirmation_page() {
    let (simulator, _) = simulator().await;
    let key = key_of(&open(login_url(&simulator, path::QR_LOGIN, &[])).await);
    let url = format!("http://{}{}?key={key}", simulator.address(), path::QR_IMAGE);
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
    let answer = client.get(&url).send().await.unwrap();
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "image/png");
    let bytes = answer.bytes().await.unwrap();
    let expected = format!("http://{}{}?k={key}", simulator.address(), path::QR_CONFIRM);
    assert_eq!(*bytes, crate::qr::png(&expected).unwrap());
    let unknown = simulator.api_url().join(&format!("{}?key=x", path::QR_IMAGE)).unwrap();
    assert_eq!(open(unknown).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_poll_with_the_current_status_waits_for_the_next() {
    let (simulator, _) = simulator().await;
    let key = key_of(&open(login_url(&simulator, path::QR_LOGIN, &[])).await);
    let query = [("key", key.as_str()), ("lastStatus", "QRCODE_SCAN_NEVER")];
    let waiting = poll(&simulator, &query);
    let scanning = async {
        while simulator.calls(path::QR_POLL) == 0 {
            tokio::task::yield_now().await;
        }
        confirm(&simulator, &key, &[]).await
    };
    let ((_, answer), _) = tokio::join!(waiting, scanning);
    assert_eq!(answer, json!({ "status": "QRCODE_SCAN_ING", "auth_code": "" }));
}

#[tokio::test]
async fn a_jsonp_callback_must_be_a_function_name() {
    let (simulator, _) = simulator().await;
    let long = "f".repeat(65);
    let table =
        [("a.b_$1", "a.b_$1"), ("alert(1);f", "jsonpCallback"), ("", "jsonpCallback"), (&long, "jsonpCallback")];
    for (given, expected) in table {
        assert_eq!(poll(&simulator, &[("key", "x"), ("callback", given)]).await.0, expected);
    }
}

#[tokio::test]
async fn the_page_is_in_the_requested_language() {
    let (simulator, _) = simulator().await;
    let table = [
        ("by parameter", "en", "zh-CN", "<html lang=\"en\">"),
        ("by parameter, Chinese", "zh", "en-GB", "<html lang=\"zh-CN\">"),
        ("by browser", "", "en-GB,en;q=0.9", "<html lang=\"en\">"),
        ("neither", "", "de", "<html lang=\"zh-CN\">"),
    ];
    for (case, parameter, header, expected) in table {
        let url = login_url(&simulator, path::QR_CONNECT, &[("lang", parameter)]);
        let seen = send(Method::GET, url, &[("accept-language", header)], "").await;
        assert!(seen.text.contains(expected), "{case}");
        assert_eq!(seen.text.contains("扫码登录"), expected.contains("zh"), "{case}");
    }
}

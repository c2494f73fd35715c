//! The authorize page: consent, denial and the switches that change it.

use super::*;

const PRIVATE: Pairs<'_> = &[("scope", "snsapi_privateinfo"), ("agentid", AGENT_ID)];

/// Returns the first link on a page that contains `part`.
fn link(page: &Seen, part: &str) -> String {
    let links = page.text.split("href=\"").skip(1).map(|rest| unescape(rest.split('"').next().unwrap()));
    links.into_iter().find(|link| link.contains(part)).unwrap_or_else(|| panic!("no link with {part}: {}", page.text))
}

async fn follow(simulator: &SimulatedPlatform, page: &Seen, part: &str) -> Seen {
    open(simulator.authorize_url().join(&link(page, part)).unwrap()).await
}

#[tokio::test]
async fn consent_to_share_private_fields_lasts_thirty_days() {
    let (simulator, clock) = simulator().await;
    let pick = async || {
        let page = open(authorize_url(&simulator, PRIVATE)).await;
        follow(&simulator, &page, "pick=u1001").await
    };
    let consent = pick().await;
    assert_eq!(consent.status, StatusCode::OK);
    assert!(consent.text.contains("王小明, share this information?") && consent.text.contains("desk.example"));
    let refused = follow(&simulator, &consent, "as=deny").await;
    assert_eq!(refused.location(), "https://desk.example/api/auth/oauth2/callback?state=auth_login");
    assert_eq!(pick().await.status, StatusCode::OK, "a denial is not remembered");

    let allowed = follow(&simulator, &pick().await, "as=u1001").await;
    assert!(query_of(allowed.location(), "code").is_some());
    let again = pick().await;
    assert_eq!(again.status, StatusCode::FOUND, "{}", again.text);
    clock.advance(Duration::from_secs(30 * 24 * 3600));
    assert_eq!(pick().await.status, StatusCode::OK, "asked again");
}

#[tokio::test]
async fn a_member_without_private_fields_is_not_asked_for_consent() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.visible_range = [(AGENT_ID.to_owned(), vec!["u1001".to_owned()])].into());
    for (who, status) in [("u1001", StatusCode::OK), ("a2001", StatusCode::FOUND), ("p7001", StatusCode::FOUND)] {
        let seen = open(authorize_url(&simulator, &[PRIVATE, &[("pick", who)]].concat())).await;
        assert_eq!(seen.status, status, "{who}");
    }
    let seen = open(authorize_url(&simulator, &[("scope", "snsapi_privateinfo")])).await;
    assert!(seen.text.contains("<code>agentid</code>"), "private fields need an application");
}

#[tokio::test]
async fn client_only_rejects_other_browsers() {
    let (simulator, _) = simulator().await;
    let url = authorize_url(&simulator, &[("as", "u1001")]);
    let table = [
        ("a desktop browser", "Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0", StatusCode::OK),
        ("the platform's client", "Mozilla/5.0 wxwork/3.1.16 MicroMessenger/7.0.1 Language/zh", StatusCode::FOUND),
        ("the consumer's messenger", "Mozilla/5.0 MicroMessenger/8.0.1", StatusCode::FOUND),
        ("no user agent", "", StatusCode::OK),
    ];
    for (case, agent, expected) in table {
        let headers = [("user-agent", agent)];
        simulator.switches(|switches| switches.client_only = true);
        let seen = send(Method::GET, url.clone(), &headers, "").await;
        assert_eq!(seen.status, expected, "{case}");
        assert_eq!(seen.text.contains("请在企业微信客户端打开链接"), expected == StatusCode::OK, "{case}");
        simulator.switches(|switches| switches.client_only = false);
        assert_eq!(send(Method::GET, url.clone(), &headers, "").await.status, StatusCode::FOUND, "{case}: off");
    }
}

#[tokio::test]
async fn redirect_uri_is_read_in_any_usual_encoding() {
    let (simulator, _) = simulator().await;
    let table = [
        ("capital digits", "http%3A%2F%2Fa.example%2Fq%3Fa%3Dg", "http://a.example/q?a=g&code="),
        ("small digits", "http%3a%2f%2fa.example%2fq%3fa%3dg", "http://a.example/q?a=g&code="),
        ("plus as a space", "http%3A%2F%2Fa.example%2F%3Fa%3Db+c", "http://a.example/?a=b%20c&code="),
        ("twenty as a space", "http%3A%2F%2Fa.example%2F%3Fa%3Db%20c", "http://a.example/?a=b%20c&code="),
        ("not encoded", "http://a.example/q", "http://a.example/q?code="),
    ];
    for (case, written, expected) in table {
        let query =
            format!("appid={CORP_ID}&redirect_uri={written}&response_type=code&scope=snsapi_base&state=&as=u1001");
        let mut url = simulator.authorize_url();
        url.set_query(Some(&query));
        let seen = open(url).await;
        assert!(seen.location().starts_with(expected), "{case}: {}", seen.location());
    }
}

#[tokio::test]
async fn deny_at_scan_redirects_without_a_code() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.deny_at_scan = true);
    let seen = open(authorize_url(&simulator, &[("as", "u1001")])).await;
    assert_eq!(seen.location(), "https://desk.example/api/auth/oauth2/callback?state=auth_login");
}

#[tokio::test]
async fn return_appid_adds_appid_to_the_callback() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.return_appid = true);
    for (who, has_code) in [("u1001", true), ("deny", false)] {
        let seen = open(authorize_url(&simulator, &[("as", who)])).await;
        assert!(seen.location().ends_with("state=auth_login&appid=wwdemo"), "{}", seen.location());
        assert_eq!(query_of(seen.location(), "code").is_some(), has_code, "{who}");
    }
}

#[tokio::test]
async fn duplicate_callback_makes_the_browser_send_two_requests() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.duplicate_callback = true);
    let seen = open(authorize_url(&simulator, &[("as", "u1001")])).await;
    assert_eq!((seen.status, seen.location()), (StatusCode::OK, "(none)"));
    let address = |before: &str| {
        let start = seen.text.find(before).unwrap_or_else(|| panic!("no {before}: {}", seen.text)) + before.len();
        unescape(seen.text[start..].split('"').next().unwrap())
    };
    let (image, then) = (address("<img src=\""), address("content=\"1; url="));
    assert!(query_of(&image, "code").is_some(), "{image}");
    assert_eq!(image, then);
    let policy = seen.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("img-src *") && !policy.contains("script-src"), "{policy}");
}

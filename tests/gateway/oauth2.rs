//! GET /api/auth/oauth2/url and /callback: a flow is bound to its browser and redirects only to client pages.

use std::collections::BTreeSet;

use url::Url;

use crate::support::*;

fn form_encode(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Fails unless the response is an error page or an error redirect to a client page, without a token.
#[track_caller]
fn expect_no_sign_in(desk: &Gateway, case: &str, response: &Response) {
    let whole = response.describe();
    assert!(!whole.contains("token="), "{case}: a token in {whole}");
    match response.status {
        302 => {
            let location = response.location();
            let public_url = format!("{}/", desk.public_url());
            assert!(location.starts_with(&public_url), "{case}: an open redirect in {whole}");
            assert!(fragment_parameter(&location, "error").is_some(), "{case}: no error in {whole}");
            assert!(fragment_parameter(&location, "error_code").is_some(), "{case}: no error_code in {whole}");
        }
        400..=499 => {
            let kind = response.header("content-type").unwrap_or_default();
            assert!(kind.starts_with("text/html"), "{case}: the error page is not HTML: {whole}");
        }
        _ => panic!("{case}: neither redirect nor error page: {whole}"),
    }
    assert_eq!(response.header("cache-control"), Some("no-store"), "{case}");
}

#[tokio::test]
async fn authorize_url_follows_the_specification() {
    let desk = Gateway::start().await;
    let target = desk.client_url("h5");
    let response = desk.anonymous().get(&format!("/api/auth/oauth2/url?redirect_uri={}", form_encode(&target))).await;
    let data = response.expect_code(0).data();

    assert_eq!(data["redirect_uri"], target, "the requested redirect_uri");
    let text = data["authorize_url"].as_str().expect("a URL");
    assert!(text.ends_with("#wechat_redirect"), "{text}");
    let url = Url::parse(text).expect("a URL");
    assert_eq!(url.port(), Some(desk.platform_address().port()), "the simulated platform");
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let expected = [
        ("appid", "wwdemo"),
        ("redirect_uri", target.as_str()),
        ("response_type", "code"),
        ("scope", "snsapi_base"),
        ("state", "auth_login"),
    ];
    let expected: Vec<(String, String)> = expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    assert_eq!(pairs, expected, "names, values and order of the specification's table");
}

#[tokio::test]
async fn authorize_url_has_the_configured_agent_id() {
    let desk = Gateway::with("[platform]\nagent_id = \"1000002\"").await;
    let url = desk.phone("u1001").authorize_url(&desk.client_url("h5")).await;
    assert!(url.ends_with("&state=auth_login&agentid=1000002#wechat_redirect"), "{url}");
}

#[tokio::test]
async fn flow_cookie_is_http_only_and_lives_ten_minutes() {
    let desk = Gateway::start().await;
    let target = format!("/api/auth/oauth2/url?redirect_uri={}", form_encode(&desk.client_url("h5")));
    let response = desk.anonymous().get(&target).await.expect_code(0);
    let cookie = response.header("set-cookie").expect("one flow cookie").to_ascii_lowercase();
    let attributes: Vec<&str> = cookie.split(';').map(str::trim).skip(1).collect();
    assert!(attributes.contains(&"httponly"), "{cookie}");
    assert!(attributes.contains(&"samesite=lax"), "{cookie}");
    assert!(attributes.contains(&"max-age=600"), "{cookie}");
    assert!(!attributes.iter().any(|attribute| attribute.starts_with("domain")), "for this host only: {cookie}");
}

#[tokio::test]
async fn redirect_uris_below_client_urls_are_accepted() {
    let desk = Gateway::start().await;
    for page in ["h5/", "h5/deep/page", "h5/page?x=1&y=2", "itagent/", "itadmin/users"] {
        let target = format!("{}/{page}", desk.public_url());
        let response =
            desk.anonymous().get(&format!("/api/auth/oauth2/url?redirect_uri={}", form_encode(&target))).await;
        assert_eq!(response.expect_code(0).data()["redirect_uri"], target.as_str());
    }
}

#[tokio::test]
async fn redirect_uris_outside_client_urls_are_refused() {
    let desk = Gateway::start().await;
    let port = desk.address().port();
    let table: &[(&str, String)] = &[
        ("a foreign host", "http://evil.example/h5/".into()),
        ("no scheme", format!("//127.0.0.1:{port}/h5/")),
        ("a foreign host without scheme", "//evil.example/h5/".into()),
        ("a backslash", "/\\evil.example/h5/".into()),
        ("a path only", "/h5/".into()),
        ("a javascript URL", "javascript:alert(1)//h5/".into()),
        ("a data URL", "data:text/html,x".into()),
        ("a user before a foreign host", format!("http://127.0.0.1:{port}@evil.example/h5/")),
        ("a user", format!("http://user@127.0.0.1:{port}/h5/")),
        ("a longer host", format!("http://127.0.0.1:{port}.evil.example/h5/")),
        ("another port", format!("http://127.0.0.1:{}/h5/", port ^ 1)),
        ("another scheme", format!("https://127.0.0.1:{port}/h5/")),
        ("another name of the same host", format!("http://localhost:{port}/h5/")),
        ("another path", format!("http://127.0.0.1:{port}/other/")),
        ("a path with the same prefix", format!("http://127.0.0.1:{port}/h5evil/")),
        ("the client's URL without its slash", format!("http://127.0.0.1:{port}/h5")),
        ("a parent segment", format!("http://127.0.0.1:{port}/h5/../other/")),
        ("an encoded parent segment", format!("http://127.0.0.1:{port}/h5/%2e%2e/other/")),
        ("a parent segment with a backslash", format!("http://127.0.0.1:{port}/h5/..\\other/")),
        ("a fragment", format!("http://127.0.0.1:{port}/h5/#fragment")),
        ("a line break", format!("http://127.0.0.1:{port}/h5/\r\nSet-Cookie: a=b")),
        ("an encoded line break", format!("http://127.0.0.1:{port}/h5/%0d%0aSet-Cookie:%20a=b")),
        ("a tab", format!("http://127.0.0.1:{port}/h\t5/")),
        ("a leading space", format!(" http://evil.example/?http://127.0.0.1:{port}/h5/")),
        ("the gateway's callback", format!("http://127.0.0.1:{port}/api/auth/oauth2/callback")),
        ("an empty value", String::new()),
    ];
    for (case, target) in table {
        let response =
            desk.anonymous().get(&format!("/api/auth/oauth2/url?redirect_uri={}", form_encode(target))).await;
        assert_eq!(response.code(), 1400, "{case}: {target}");
        assert!(response.header("set-cookie").is_none(), "{case}: a flow cookie was set");
        response.expect_code(1400);
    }
    desk.anonymous().get("/api/auth/oauth2/url").await.expect_code(1400);
}

#[tokio::test]
async fn callback_returns_to_the_requested_page_with_a_token() {
    let desk = Gateway::start().await;
    for (member, client) in [("u1001", "h5"), ("a2001", "itagent"), ("m5001", "itadmin"), ("m5001", "h5")] {
        let page = desk.client_url(client);
        let phone = desk.phone(member);
        let response = phone.oauth2(&page).await.expect_status(302);
        let location = response.location();
        let (address, _) = location.split_once('#').expect("a fragment");
        assert_eq!(address, page, "only a fragment is added");
        assert_eq!(fragment_parameter(&location, "token_type").as_deref(), Some("Bearer"));
        let seconds: i64 = fragment_parameter(&location, "expires_in").expect("expires_in").parse().expect("seconds");
        assert!((28_700..=28_800).contains(&seconds), "{seconds}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "the response has a token");
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));

        let token = fragment_parameter(&location, "token").expect("a token");
        let me = desk.with_token(&token).get("/api/auth/me").await.expect_code(0).data();
        assert_eq!((&me["employee_id"], &me["login_source"]), (&json!(member), &json!(client)));
    }
}

#[tokio::test]
async fn callback_keeps_the_query_of_the_requested_page() {
    let desk = Gateway::start().await;
    let page = format!("{}deep/page?x=1&y=2", desk.client_url("h5"));
    let location = desk.phone("u1001").oauth2(&page).await.location();
    assert_eq!(location.split('#').next(), Some(page.as_str()));
    assert!(fragment_parameter(&location, "token").is_some(), "{location}");
}

/// Signs in on all pages in one browser: every flow starts before the first callback.
async fn sign_in_concurrently(desk: &Gateway, pages: &[String], referer: impl Fn(&str) -> Option<String>) {
    let phone = desk.phone("a2001");
    let mut callbacks = Vec::new();
    for page in pages {
        let authorize_url = phone.authorize_url(page).await;
        callbacks.push((page, phone.authorize(&authorize_url).await));
    }
    callbacks.reverse();
    let mut sessions = BTreeSet::new();
    for (page, callback) in &callbacks {
        let tab = match referer(page) {
            Some(referer) => phone.client().with_header("Referer", &referer),
            None => phone.client().clone(),
        };
        let location = tab.get(callback).await.location();
        let token = fragment_parameter(&location, "token").unwrap_or_else(|| panic!("no token in {location}"));
        assert!(pages.iter().any(|page| location.starts_with(&format!("{page}#"))), "{location}");
        desk.with_token(&token).get("/api/auth/me").await.expect_code(0);
        sessions.insert(jti_of(&token));
    }
    assert_eq!(sessions.len(), pages.len());
}

#[tokio::test]
async fn ten_tabs_of_one_page_all_sign_in() {
    let desk = Gateway::start().await;
    let pages = vec![desk.client_url("itagent"); 10];
    sign_in_concurrently(&desk, &pages, |_| None).await;
    sign_in_concurrently(&desk, &pages, |page| Some(page.to_owned())).await;
}

#[tokio::test]
async fn ten_tabs_of_ten_pages_all_sign_in() {
    let desk = Gateway::start().await;
    let pages: Vec<String> = (0..10).map(|tab| format!("{}tab/{tab}", desk.client_url("itagent"))).collect();
    // A page may send no Referer, and browsers may shorten it to the origin.
    sign_in_concurrently(&desk, &pages, |_| None).await;
    sign_in_concurrently(&desk, &pages, |page| page.find("/itagent").map(|end| page[..=end].to_owned())).await;
}

#[tokio::test]
async fn callback_without_flow_cookie_is_refused() {
    let desk = Gateway::start().await;
    let phone = desk.phone("u1001");
    let authorize_url = phone.authorize_url(&desk.client_url("h5")).await;

    let callback = phone.authorize(&authorize_url).await;
    let response = desk.anonymous().get(&callback).await;
    expect_no_sign_in(&desk, "another browser", &response);

    let callback = phone.authorize(&authorize_url).await;
    let jar = phone.client().jar();
    assert!(!jar.is_empty());
    for (case, jar) in [
        ("a truncated cookie", jar.clone().tampered(|value| value[..value.len() / 2].to_owned())),
        ("a forged cookie", jar.clone().tampered(|value| "A".repeat(value.len()))),
        ("a cookie with a changed signature", jar.clone().tampered(change_near_the_end)),
        ("an empty cookie", jar.clone().tampered(|_| String::new())),
    ] {
        let browser = desk.anonymous();
        browser.use_jar(jar);
        expect_no_sign_in(&desk, case, &browser.get(&callback).await);
    }
}

fn change_near_the_end(value: &str) -> String {
    let index = value.len().saturating_sub(3);
    let letter = if value[index..].starts_with('x') { "y" } else { "x" };
    format!("{}{letter}{}", &value[..index], &value[index + 1..])
}

#[tokio::test]
async fn callback_sent_by_a_foreign_page_is_refused() {
    let desk = Gateway::start().await;
    let page = desk.client_url("h5");
    for (case, name, value, signs_in) in [
        ("a foreign page", "Referer", "http://evil.example/", false),
        ("another port of this host", "Referer", "http://127.0.0.1:1/h5/", false),
        ("a foreign site", "Sec-Fetch-Site", "cross-site", false),
        ("the client's page", "Referer", page.as_str(), true),
        ("the client's site", "Sec-Fetch-Site", "same-origin", true),
    ] {
        let phone = desk.phone("u1001");
        let authorize_url = phone.authorize_url(&page).await;
        let callback = phone.authorize(&authorize_url).await;
        let response = phone.client().with_header(name, value).get(&callback).await;
        if signs_in {
            let location = response.location();
            let token =
                fragment_parameter(&location, "token").unwrap_or_else(|| panic!("{case}: no token in {location}"));
            desk.with_token(&token).get("/api/auth/me").await.expect_code(0);
        } else {
            expect_no_sign_in(&desk, case, &response);
        }
    }
}

#[tokio::test]
async fn expired_flow_cookie_is_refused() {
    let desk = Gateway::with("[oauth2]\nflow_lifetime = \"1s\"").await;
    let phone = desk.phone("u1001");
    let authorize_url = phone.authorize_url(&desk.client_url("h5")).await;
    // The test's browser keeps expired cookies, as a hostile one would.
    let jar = phone.client().jar();
    let response = eventually("the end of the flow", || async {
        phone.client().use_jar(jar.clone());
        let callback = phone.authorize(&authorize_url).await;
        let response = phone.client().get(&callback).await;
        (!response.describe().contains("token=")).then_some(response)
    })
    .await;
    expect_no_sign_in(&desk, "an expired flow cookie", &response);
}

#[tokio::test]
async fn callback_without_cookie_rule_returns_to_the_page_of_the_active_role() {
    let desk = Gateway::with("[oauth2]\nrequire_flow_cookie = false").await;
    for (member, client) in [("u1001", "h5"), ("a2001", "itagent"), ("m5001", "itadmin")] {
        let authorize_url = desk.phone(member).authorize_url(&desk.client_url("h5")).await;
        // Another phone without a flow: the link of the platform's workbench.
        let phone = desk.phone(member);
        let callback = phone.authorize(&authorize_url).await;
        let location = phone.client().get(&callback).await.expect_status(302).location();
        assert_eq!(location.split('#').next(), Some(desk.client_url(client).as_str()), "{member}");
        let token = fragment_parameter(&location, "token").expect("a token");
        desk.with_token(&token).get("/api/auth/me").await.expect_code(0);
    }
}

#[tokio::test]
async fn repeated_callback_gets_the_same_response() {
    let desk = Gateway::start().await;
    let phone = desk.phone("u1001");
    let authorize_url = phone.authorize_url(&desk.client_url("h5")).await;
    let callback = phone.authorize(&authorize_url).await;
    // Both requests are sent before either is answered, so both carry the flow cookie.
    let (one, two) = (desk.anonymous(), desk.anonymous());
    one.use_jar(phone.client().jar());
    two.use_jar(phone.client().jar());
    let (first, second) = tokio::join!(one.get(&callback), two.get(&callback));
    let token = fragment_parameter(&first.location(), "token").expect("a token");
    assert_eq!(fragment_parameter(&second.location(), "token").as_deref(), Some(token.as_str()));
    let third = desk.anonymous();
    third.use_jar(phone.client().jar());
    assert_eq!(third.get(&callback).await.location(), first.location(), "a later repetition");
}

#[tokio::test]
async fn callback_code_is_bound_to_its_browser() {
    let desk = Gateway::start().await;
    let victim = desk.phone("m5001");
    let authorize_url = victim.authorize_url(&desk.client_url("itadmin")).await;
    let callback = victim.authorize(&authorize_url).await;
    assert!(fragment_parameter(&victim.client().get(&callback).await.location(), "token").is_some());

    expect_no_sign_in(&desk, "a used code without a flow", &desk.anonymous().get(&callback).await);
    let thief = desk.phone("u1001");
    thief.authorize_url(&desk.client_url("h5")).await;
    expect_no_sign_in(&desk, "a used code in another flow", &thief.client().get(&callback).await);
}

#[tokio::test]
async fn callback_reports_refusals_to_the_requested_page() {
    let desk = Gateway::start().await;
    let page = desk.client_url("h5");
    for (case, member, code) in [("refused at the platform", "deny", "1400"), ("a disabled member", "x8001", "1003")] {
        let response = desk.phone(member).oauth2(&page).await.expect_status(302);
        expect_no_sign_in(&desk, case, &response);
        let location = response.location();
        assert!(location.starts_with(&format!("{page}#")), "{case}: {location}");
        assert_eq!(fragment_parameter(&location, "error_code").as_deref(), Some(code), "{case}: {location}");
        let message = fragment_parameter(&location, "error_description").unwrap_or_default();
        assert!(message.contains(' ') && !message.contains("parameter"), "{case}: not a readable message: {message}");
    }
}

#[tokio::test]
async fn malformed_callbacks_are_refused() {
    let desk = Gateway::start().await;
    let phone = desk.phone("u1001");
    let table = [
        ("no parameters", String::new()),
        ("a forged code", "?code=forged&state=auth_login".to_owned()),
        ("an empty code", "?code=&state=auth_login".to_owned()),
        ("no code", "?state=auth_login".to_owned()),
        ("an unknown state", "?code=forged&state=other".to_owned()),
        ("no state", "?code=forged".to_owned()),
        ("two states", "?code=forged&state=auth_login&state=other".to_owned()),
        ("an array", "?code=forged&state[]=auth_login".to_owned()),
        ("an unknown scan id", "?code=forged&state=qrAAAAAAAAAAAAAAAAAAAAAAAA".to_owned()),
        ("an empty scan id", "?code=forged&state=qr".to_owned()),
        ("a long state", format!("?code=forged&state=qr{}", "A".repeat(4000))),
        ("a long code", format!("?code={}&state=auth_login", "A".repeat(4000))),
        ("a platform error", "?errcode=40029&errmsg=invalid+code&state=auth_login".to_owned()),
        ("an error code that is no number", "?errcode=many&errmsg=x&state=auth_login".to_owned()),
        ("a script", "?errcode=1&errmsg=%3Cscript%3Ealert(1)%3C/script%3E&state=auth_login".to_owned()),
        ("a line break", "?errcode=1&errmsg=a%0d%0aSet-Cookie:%20evil=1&state=auth_login".to_owned()),
        ("a redirect_uri", "?code=forged&state=auth_login&redirect_uri=http://evil.example/".to_owned()),
    ];
    for (case, query) in table {
        phone.authorize_url(&desk.client_url("h5")).await;
        for (flow, browser) in [("with a flow", phone.client().clone()), ("without a flow", desk.anonymous())] {
            let response = browser.get(&format!("/api/auth/oauth2/callback{query}")).await;
            let whole = response.describe();
            expect_no_sign_in(&desk, &format!("{case}, {flow}"), &response);
            assert!(!whole.contains("<script>alert"), "{case}, {flow}: {whole}");
            assert!(!response.header_all("set-cookie").iter().any(|cookie| cookie.contains("evil")), "{case}: {whole}");
        }
    }
}

#[tokio::test]
async fn callback_redirects_only_to_the_page_of_its_flow() {
    let desk = Gateway::start().await;
    let phone = desk.phone("u1001");
    let page = desk.client_url("h5");
    let authorize_url = phone.authorize_url(&page).await;
    let callback = phone.authorize(&authorize_url).await;
    let location = phone.client().get(&format!("{callback}&redirect_uri=http://evil.example/")).await.location();
    assert!(location.starts_with(&format!("{page}#token=")), "{location}");
}

#[tokio::test]
async fn employee_without_a_role_gets_the_default_role() {
    let desk = Gateway::start().await;
    let employee = desk.sign_in_by_oauth2("n6001", "h5").await;
    let me = employee.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["roles"], &me["current_role"]), (&json!(["user"]), &json!("user")));
}

#[tokio::test]
async fn employee_without_a_role_is_refused_without_a_default_role() {
    let desk = Gateway::with("[directory]\ndefault_role = \"\"").await;
    let response = desk.phone("n6001").oauth2(&desk.client_url("h5")).await;
    expect_no_sign_in(&desk, "no role", &response);
    assert_eq!(fragment_parameter(&response.location(), "error_code").as_deref(), Some("1003"));
}

#[tokio::test]
async fn callback_parameters_are_never_reflected() {
    let desk = Gateway::start().await;
    let phone = desk.phone("u1001");
    for parameters in ["errcode=many", "errcode=1", "errcode=99999999999999999999", "errcode=-1&errmsg="] {
        let query = format!(
            "?{parameters}&errmsg=%3Cscript%3Ealert(1)%3C/script%3E%0d%0aSet-Cookie:%20evil=1&state=auth_login"
        );
        phone.authorize_url(&desk.client_url("h5")).await;
        for browser in [phone.client().clone(), desk.anonymous()] {
            let response = browser.get(&format!("/api/auth/oauth2/callback{query}")).await;
            let whole = response.describe();
            for part in ["script>alert", "script%3E", "evil", "99999"] {
                let reflected = whole.lines().skip(1).any(|line| line.contains(part));
                assert!(!reflected, "{parameters}: {part} in {whole}");
            }
        }
    }
}

#[tokio::test]
async fn cross_site_requests_cannot_start_a_flow() {
    let desk = Gateway::start().await;
    let target = format!("/api/auth/oauth2/url?redirect_uri={}", form_encode(&desk.client_url("h5")));
    for (case, headers) in [
        ("another site's script", [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")]),
        ("another site's window", [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")]),
        ("the address bar", [("Sec-Fetch-Site", "none"), ("Sec-Fetch-Mode", "navigate")]),
    ] {
        let response = desk.anonymous().send("GET", &target, &headers, b"").await;
        assert_eq!(response.code(), 1400, "{case}");
        assert!(response.header("set-cookie").is_none(), "{case}: {}", response.describe());
    }
    let same_origin = [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "cors")];
    desk.anonymous().send("GET", &target, &same_origin, b"").await.expect_code(0);
}

#[tokio::test]
async fn flow_cookies_stay_below_the_head_limit() {
    let desk = Gateway::start().await;
    let browser = desk.anonymous();
    let long = format!("{}{}", desk.client_url("h5"), "a".repeat(1900));
    let target = format!("/api/auth/oauth2/url?redirect_uri={}", form_encode(&long));
    for _ in 0..20 {
        browser.get(&target).await.expect_code(0);
        let cookie_bytes: usize = browser.jar().pairs().iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(cookie_bytes < 12 * 1024, "{cookie_bytes} bytes of cookies");
    }
}

#[tokio::test]
async fn error_page_shows_the_request_id_of_the_log() {
    let desk = Gateway::start().await;
    let response = desk.anonymous().get("/api/auth/oauth2/callback?code=x&state=auth_login").await;
    let id = response.header("x-request-id").expect("an id").to_owned();
    assert!(response.text().contains(&id), "{}", response.describe());
    desk.wait_for_log(&["sign-in refused: invalid_flow", &id]).await;
}

#[tokio::test]
async fn flow_cookie_works_only_in_the_browser_that_started_the_flow() {
    let desk = Gateway::start().await;
    let browser = |user_agent: &str| Phone::new(desk.anonymous().with_header("User-Agent", user_agent), "u1001");
    let started = |network: &str| format!("Mozilla/5.0 (Linux; Android 14) wxwork/4.1 NetType/{network} Language/zh");
    let another = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0".to_owned();
    for (case, returning, signs_in) in [
        ("the same browser", started("WIFI"), true),
        ("the same browser on another network", started("5G"), true),
        ("a copy in another browser", another, false),
    ] {
        let phone = browser(&started("WIFI"));
        let callback = phone.authorize(&phone.authorize_url(&desk.client_url("h5")).await).await;
        let other = browser(&returning);
        other.client().use_jar(phone.client().jar());
        let response = other.client().get(&callback).await;
        if signs_in {
            assert!(response.location().contains("#token="), "{case}: {}", response.describe());
        } else {
            expect_no_sign_in(&desk, case, &response);
        }
    }
}

/// Signs an agent in with a platform code.
async fn login_with(desk: &Gateway, employee: &str, code: &str) -> Response {
    desk.anonymous().post_json("/api/agents/login", &json!({ "employee_id": employee, "code": code })).await
}

#[tokio::test]
async fn code_of_one_way_is_refused_in_another() {
    let desk = Gateway::start().await;
    let code_of = |callback: &str| query_parameter(callback, "code").expect("a code");
    let scan_state = |qrcode_url: &str| query_parameter(qrcode_url, "state").expect("a state");
    let qrcode_url = || async {
        let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
        ticket["qrcode_url"].as_str().expect("a URL").to_owned()
    };
    let redirect_with = |phone: &Phone, code: &str| {
        let (client, target) =
            (phone.client().clone(), format!("/api/auth/oauth2/callback?code={code}&state=auth_login"));
        async move { client.get(&target).await }
    };

    // A scan that was refused because its ticket is unknown: the platform still takes the code.
    let phone = desk.phone("a2001");
    let code = code_of(&phone.authorize(&qrcode_url().await).await);
    let unknown = format!("/api/auth/oauth2/callback?code={code}&state=qr{}", "A".repeat(32));
    expect_no_sign_in(&desk, "an unknown ticket", &phone.client().get(&unknown).await);
    phone.authorize_url(&desk.client_url("h5")).await;
    expect_no_sign_in(&desk, "a scan's code at a redirect", &redirect_with(&phone, &code).await);
    login_with(&desk, "a2001", &code).await.expect_code(1400);
    let other_scan = format!("/api/auth/oauth2/callback?code={code}&state={}", scan_state(&qrcode_url().await));
    expect_no_sign_in(&desk, "a scan's code at another scan", &desk.phone("a2001").client().get(&other_scan).await);

    // A redirect that was refused because the browser had no flow.
    let phone = desk.phone("a2001");
    let code = code_of(&phone.authorize(&phone.authorize_url(&desk.client_url("h5")).await).await);
    expect_no_sign_in(&desk, "no flow", &redirect_with(&desk.phone("a2001"), &code).await);
    login_with(&desk, "a2001", &code).await.expect_code(1400);
    let scan = format!("/api/auth/oauth2/callback?code={code}&state={}", scan_state(&qrcode_url().await));
    expect_no_sign_in(&desk, "a redirect's code at a scan", &phone.client().get(&scan).await);
    expect_no_sign_in(&desk, "a refused code in its own flow", &redirect_with(&phone, &code).await);

    // An agent's sign-in that was refused because the code is another employee's.
    let phone = desk.phone("a2001");
    let code = code_of(&phone.authorize(&phone.authorize_url(&desk.client_url("h5")).await).await);
    login_with(&desk, "u1001", &code).await.expect_code(1003);
    expect_no_sign_in(&desk, "an agent's code at a redirect", &redirect_with(&phone, &code).await);

    // Each way still works with a code of its own.
    desk.sign_in_by_oauth2("a2001", "h5").await;
    desk.sign_in_by_qrcode("a2001").await;
    let code = code_of(&phone.authorize(&phone.authorize_url(&desk.client_url("itagent")).await).await);
    login_with(&desk, "a2001", &code).await.expect_code(0);
}

#[tokio::test]
async fn scan_callback_sent_by_a_page_of_this_site_is_refused() {
    let desk = Gateway::start().await;
    let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let phone = desk.phone("u1001");
    let callback = phone.authorize(ticket["qrcode_url"].as_str().expect("a URL")).await;
    let response = phone.client().with_header("Sec-Fetch-Site", "same-origin").get(&callback).await;
    expect_no_sign_in(&desk, "a client's page with a scan's state", &response);
}

#[tokio::test]
async fn unknown_client_is_answered_with_the_known_ones() {
    let desk = Gateway::start().await;
    for (language, advice) in [("en", "There is no such client"), ("zh-CN", "没有这个客户端")] {
        let browser = desk.anonymous().with_header("Accept-Language", language);
        let page = browser.get("/api/auth/signin?client=zzz").await.expect_status(400);
        assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{}", page.describe());
        let json = browser.get("/api/auth/qrcode?client=zzz").await.expect_code(1400);
        for response in [page, json] {
            let text = response.text();
            assert!([advice, "h5", "itagent", "itadmin"].iter().all(|part| text.contains(part)), "{text}");
            assert!(!text.contains("zzz"), "{text}");
        }
    }
}

#[tokio::test]
async fn refusal_at_the_platform_says_what_to_do_next() {
    let desk = Gateway::start().await;
    let response = desk.phone("deny").oauth2(&desk.client_url("h5")).await.expect_status(302);
    let message = fragment_parameter(&response.location(), "error_description").expect("a message");
    assert!(message.contains("Sign in again"), "{message}");

    let ticket = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    let page = desk.phone("deny").scan(ticket["qrcode_url"].as_str().expect("a URL")).await.expect_status(400);
    assert!(page.text().contains("show a new code on your computer"), "{}", page.describe());
    assert!(page.text().contains("/api/auth/signin"), "{}", page.describe());
}

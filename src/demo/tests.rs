#![allow(clippy::disallowed_types, reason = "a browser of tests, not the product's HTTP client")]

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::http::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use url::Url;

use self::browser::{Seen, authorize_url, code_of, code_with, open, unescape};
use super::members::{APPLICATIONS, ROOT};
use super::*;
use crate::domain::clock::Clock;

mod authorize;
pub(crate) mod browser;
mod connected;
mod contacts;
mod control;
mod faults;
mod hosted;
mod identity;
mod pages;
mod switches;
mod tokens;
mod trusted_domains;

type Pairs<'a> = &'a [(&'a str, &'a str)];

async fn simulator() -> (SimulatedPlatform, Clock) {
    let clock = Clock::system();
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    (SimulatedPlatform::start(listen, clock.clone()).await.unwrap(), clock)
}

async fn call(simulator: &SimulatedPlatform, path: &str, query: Pairs<'_>) -> Value {
    let mut url = simulator.api_url().join(path).unwrap();
    url.query_pairs_mut().extend_pairs(query);
    let seen = open(url).await;
    assert_eq!(seen.status, StatusCode::OK, "{path}");
    serde_json::from_str(&seen.text).unwrap()
}

/// Sends any request and does not follow redirects.
async fn send(method: Method, url: Url, headers: Pairs<'_>, body: &str) -> Seen {
    let policy = reqwest::redirect::Policy::none();
    let client = reqwest::Client::builder().tls_certs_only([]).redirect(policy).no_proxy().build().unwrap();
    let mut request = client.request(method, url).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.unwrap();
    Seen { status: answer.status(), headers: answer.headers().clone(), text: answer.text().await.unwrap() }
}

/// Calls the server API with a token and a JSON body.
async fn post(simulator: &SimulatedPlatform, path: &str, token: &str, body: &Value) -> Value {
    let mut url = simulator.api_url().join(path).unwrap();
    url.query_pairs_mut().append_pair("access_token", token);
    let seen = send(Method::POST, url, &[], &body.to_string()).await;
    assert_eq!(seen.status, StatusCode::OK, "{path}");
    serde_json::from_str(&seen.text).unwrap()
}

/// Returns the `errcode` of a call.
async fn errcode(simulator: &SimulatedPlatform, path: &str, query: Pairs<'_>) -> i64 {
    call(simulator, path, query).await["errcode"].as_i64().unwrap()
}

/// Returns a query parameter of a URL.
fn query_of(address: &str, name: &str) -> Option<String> {
    let url = Url::parse(address).unwrap();
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

async fn token_of(simulator: &SimulatedPlatform, secret: &str) -> String {
    let answer = call(simulator, path::TOKEN, &[("corpid", CORP_ID), ("corpsecret", secret)]).await;
    answer["access_token"].as_str().unwrap().to_owned()
}

#[test]
fn the_members_are_those_of_the_contract() {
    let switches = Switches::default();
    let found: Vec<String> = switches.effective_members().map(|person| person.identifier()).collect();
    let expected = ["u1001", "a2001", "s3001", "c4001", "m5001", "n6001", "wwpartner/p7001", "x8001"];
    assert_eq!(found, expected);
    for person in switches.effective_members() {
        assert_eq!(person.kind, person.member.kind);
        assert_ne!(person.department_id(), ROOT, "{}", person.member.userid);
    }
}

#[tokio::test]
async fn the_authorize_page_lists_the_members_and_has_no_script() {
    let (simulator, _) = simulator().await;
    let seen = open(authorize_url(&simulator, &[("state", "\"><script>x{{deny}}")])).await;
    assert_eq!(seen.status, StatusCode::OK);
    assert!(seen.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/html"));
    assert!(seen.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none'"));
    assert!(!seen.text.contains("<script") && !seen.text.contains("{{"), "{}", seen.text);
    for member in members() {
        assert!(seen.text.contains(member.name), "{}", member.userid);
    }
    // The first link works as a browser reads it.
    let start = seen.text.find("href=\"?").unwrap() + "href=\"".len();
    let link = unescape(seen.text[start..].split('"').next().unwrap());
    let seen = open(simulator.authorize_url().join(&link).unwrap()).await;
    assert_eq!(seen.status, StatusCode::FOUND);
    assert!(seen.location().ends_with("&state=%22%3E%3Cscript%3Ex%7B%7Bdeny%7D%7D"), "{}", seen.location());
}

#[tokio::test]
async fn an_invalid_parameter_is_named_on_the_error_page() {
    let (simulator, _) = simulator().await;
    let long = "s".repeat(129);
    let table: &[(&str, (&str, &str))] = &[
        ("no corporation", ("appid", "")),
        ("another corporation", ("appid", "wwother")),
        ("no address", ("redirect_uri", "")),
        ("no absolute address", ("redirect_uri", "/h5/")),
        ("a script as address", ("redirect_uri", "javascript:alert(1)")),
        ("no response type", ("response_type", "")),
        ("implicit grant", ("response_type", "token")),
        ("no scope", ("scope", "")),
        ("unknown scope", ("scope", "openid")),
        ("long state", ("state", &long)),
        ("unknown application", ("agentid", "1")),
        ("unknown member", ("as", "z9999")),
    ];
    for (case, change) in table {
        let seen = open(authorize_url(&simulator, &[*change])).await;
        assert_eq!(seen.status, StatusCode::BAD_REQUEST, "{case}");
        assert!(seen.text.contains(&format!("<code>{}</code>", change.0)), "{case}");
        assert_eq!(seen.location(), "(none)", "{case}");
    }
}

#[tokio::test]
async fn code_and_state_are_appended_to_the_query_of_redirect_uri() {
    let (simulator, _) = simulator().await;
    const BACK: &str = "redirect_uri";
    let table: &[(&str, Pairs<'_>, &str)] = &[
        (
            "no query",
            &[(BACK, "http://a.example/cb"), ("as", "u1001")],
            "http://a.example/cb?code=CODE&state=auth_login",
        ),
        (
            "own query",
            &[(BACK, "http://a.example/q?a=g%2Ft"), ("as", "u1001")],
            "http://a.example/q?a=g%2Ft&code=CODE&state=auth_login",
        ),
        (
            "own fragment",
            &[(BACK, "http://a.example/q?a=1#top"), ("as", "u1001")],
            "http://a.example/q?a=1&code=CODE&state=auth_login#top",
        ),
        (
            "no state",
            &[(BACK, "http://a.example/cb"), ("as", "u1001"), ("state", "")],
            "http://a.example/cb?code=CODE&state=",
        ),
        ("refused", &[(BACK, "http://a.example/cb"), ("as", "deny")], "http://a.example/cb?state=auth_login"),
        (
            "refused, own query",
            &[(BACK, "http://a.example/cb?a=1"), ("as", "deny")],
            "http://a.example/cb?a=1&state=auth_login",
        ),
        (
            "line ends",
            &[(BACK, "http://a.example/cb"), ("as", "deny"), ("state", "a\r\nb: c")],
            "http://a.example/cb?state=a%0D%0Ab%3A+c",
        ),
    ];
    for (case, changes, expected) in table {
        let seen = open(authorize_url(&simulator, changes)).await;
        assert_eq!(seen.status, StatusCode::FOUND, "{case}");
        let code = Url::parse(seen.location()).unwrap();
        let code = code.query_pairs().find(|(name, _)| name == "code").map(|(_, code)| code.into_owned());
        assert_eq!(seen.location(), expected.replace("CODE", &code.unwrap_or_default()), "{case}");
    }
}

#[tokio::test]
async fn each_error_has_the_errcode_and_text_of_wecom() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let token = ("access_token", token.as_str());
    let unknown = ("access_token", "unknown");
    let corp = ("corpid", CORP_ID);
    let table: &[(&str, &str, Pairs<'_>, i64, &str)] = &[
        ("token: no corporation", path::TOKEN, &[("corpsecret", SECRET)], 41002, "corpid missing"),
        ("token: no secret", path::TOKEN, &[corp], 41004, "secret missing"),
        (
            "token: other corporation",
            path::TOKEN,
            &[("corpid", "ww1"), ("corpsecret", SECRET)],
            40013,
            "invalid corpid",
        ),
        ("token: wrong secret", path::TOKEN, &[corp, ("corpsecret", "x")], 40001, "invalid credential"),
        ("no token", path::USER_INFO, &[("code", "x")], 41001, "access_token missing"),
        ("an unknown token", path::USER_INFO, &[unknown, ("code", "x")], 40014, "invalid access_token"),
        ("no code", path::USER_INFO, &[token], 41008, "missing code"),
        ("an unknown code", path::USER_INFO, &[token, ("code", "x")], 40029, "invalid code"),
        ("the same, older path", path::LEGACY_USER_INFO, &[token, ("code", "x")], 40029, "invalid code"),
        ("member: no token", path::USER, &[("userid", "u1001")], 41001, "access_token missing"),
        ("member: none named", path::USER, &[token], 41009, "missing userid"),
        ("member: no userid", path::USER, &[token, ("userid", "wwpartner/p7001")], 40003, "invalid userid"),
        ("member: unknown", path::USER, &[token, ("userid", "z9999")], 60111, "userid not found"),
        ("member: elsewhere", path::USER, &[token, ("userid", "p7001")], 60111, "userid not found"),
        ("department: no token", path::DEPARTMENT, &[("id", "2")], 41001, "access_token missing"),
        ("department: unknown", path::DEPARTMENT, &[token, ("id", "99")], 60003, "department not found"),
        ("department: no number", path::DEPARTMENT, &[token, ("id", "x")], 60003, "department not found"),
    ];
    for (case, path, query, errcode, text) in table {
        let answer = call(&simulator, path, query).await;
        assert_eq!(answer["errcode"], *errcode, "{case}");
        let message = answer["errmsg"].as_str().unwrap();
        assert!(message.starts_with(&format!("{text}, hint: [")), "{case}: {message}");
        assert!(message.contains("], from ip: 127.0.0.1, more info at https://"), "{case}: {message}");
        assert!(message.ends_with(&format!("?e={errcode}")), "{case}: {message}");
    }
}

#[tokio::test]
async fn the_two_user_info_paths_spell_their_keys_differently() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let token = ("access_token", token.as_str());
    let code = code_of(&simulator, "P7001").await;
    let answer = call(&simulator, path::USER_INFO, &[token, ("code", &code)]).await;
    assert_eq!(answer, json!({ "errcode": 0, "errmsg": "ok", "userid": "wwpartner/p7001" }));
    let code = code_of(&simulator, "u1001").await;
    let answer = call(&simulator, path::LEGACY_USER_INFO, &[token, ("code", &code)]).await;
    assert_eq!(answer, json!({ "errcode": 0, "errmsg": "ok", "UserId": "u1001", "DeviceId": "" }));

    let answer = call(&simulator, path::USER, &[token, ("userid", "A2001")]).await;
    assert_eq!((&answer["userid"], &answer["name"]), (&"a2001".into(), &"Alice Chen".into()));
    assert_eq!((&answer["status"], &answer["main_department"]), (&1.into(), &2.into()));
    assert!(answer.get("avatar").is_none() && answer.get("mobile").is_none());
    let answer = call(&simulator, path::DEPARTMENT, &[token, ("id", "2")]).await;
    assert_eq!((&answer["department"]["id"], &answer["department"]["name"]), (&2.into(), &"IT".into()));
}

#[tokio::test]
async fn a_code_is_valid_once_for_five_minutes_and_for_its_application() {
    let (simulator, clock) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let ours = ("access_token", token.as_str());
    let token = token_of(&simulator, APPLICATIONS[1].secret).await;
    let theirs = ("access_token", token.as_str());
    assert_ne!(ours, theirs);
    let exchange =
        async |token, code: &str| call(&simulator, path::USER_INFO, &[token, ("code", code)]).await["errcode"].clone();

    let code = code_of(&simulator, "u1001").await;
    assert_ne!(code, code_of(&simulator, "u1001").await, "differs each time");
    assert_eq!(exchange(ours, &code).await, 0);
    assert_eq!(exchange(ours, &code).await, 40029, "used");

    let code = code_with(&simulator, &[("as", "u1001"), ("agentid", AGENT_ID)]).await;
    assert_eq!(exchange(theirs, &code).await, 40029, "another application's");
    assert_eq!(exchange(("access_token", "stale"), &code).await, 40014, "a rejected token leaves the code usable");
    assert_eq!(exchange(ours, &code).await, 0);

    let code = code_of(&simulator, "u1001").await;
    clock.advance(Duration::from_secs(300));
    assert_eq!(exchange(ours, &code).await, 40029, "expired");
}

#[tokio::test]
async fn a_token_stays_the_same_until_it_expires() {
    let (simulator, clock) = simulator().await;
    let ask = async || call(&simulator, path::TOKEN, &[("corpid", CORP_ID), ("corpsecret", SECRET)]).await;
    let first = ask().await;
    assert_eq!((&first["errcode"], &first["expires_in"]), (&0.into(), &7200.into()));
    clock.advance(Duration::from_secs(3600));
    let again = ask().await;
    assert_eq!(again["access_token"], first["access_token"]);
    assert!(again["expires_in"].as_u64().unwrap() <= 3600);
    clock.advance(Duration::from_secs(3600));
    let token = ("access_token", first["access_token"].as_str().unwrap());
    let refused = call(&simulator, path::DEPARTMENT, &[token, ("id", "2")]).await;
    assert_eq!(refused["errcode"], 42001);
    assert_ne!(ask().await["access_token"], first["access_token"]);
    simulator.revoke_tokens();
    let refused = call(&simulator, path::DEPARTMENT, &[token, ("id", "2")]).await;
    assert_eq!(refused["errcode"], 40014);
    assert_eq!((simulator.calls(path::TOKEN), simulator.calls(path::DEPARTMENT)), (3, 2));
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let (simulator, _) = simulator().await;
    for path in ["/", "/cgi-bin/", "/cgi-bin/user/create", "/connect/oauth2/authorize/"] {
        assert_eq!(open(simulator.api_url().join(path).unwrap()).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn stop_and_drop_close_the_listener() {
    let (stopped, _) = simulator().await;
    let address = stopped.address();
    stopped.stop().await;
    assert!(TcpStream::connect(address).await.is_err());

    let (dropped, _) = simulator().await;
    let address = dropped.address();
    drop(dropped);
    let gone = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap();
}

//! A platform that answers what it should not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

const TOKEN: &str = "token-that-must-not-show";

async fn serve(router: Router) -> Url {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    url
}

fn client_of(api_url: &Url) -> WecomPlatform {
    WecomPlatform::new(settings("https://wecom.example/authorize", api_url.as_str())).unwrap()
}

/// A client of a platform that gives a token and then this answer to everything.
async fn client_hearing(status: StatusCode, body: impl Into<String>) -> WecomPlatform {
    let body: String = body.into();
    let token = json!({ "access_token": TOKEN, "expires_in": 7200 }).to_string();
    let answer = move || async move { (status, [("location", "/elsewhere")], body.clone()) };
    // A redirect leads to a good answer: whoever follows it is found out.
    let elsewhere = get(|| async { json!({ "errcode": 0, "userid": "u1001" }).to_string() });
    let router = Router::new().route(path::TOKEN, get(|| async { token })).route("/elsewhere", elsewhere);
    let router = router.fallback(get(answer));
    client_of(&serve(router).await)
}

async fn identify(status: StatusCode, body: impl Into<String>) -> Result<Person, PlatformError> {
    client_hearing(status, body).await.identify("code-that-must-not-show").await
}

#[tokio::test]
async fn an_answer_names_a_person_in_either_case_of_keys() {
    let table: &[(&str, Value, Option<Person>)] = &[
        ("no errcode", json!({ "userid": "u1001" }), Some(member("u1001"))),
        ("older keys", json!({ "errcode": 0, "UserId": "u1001", "DeviceId": "" }), Some(member("u1001"))),
        ("an outsider", json!({ "errcode": 0, "openid": "o1" }), Some(Person::Outsider)),
        ("an outsider, older keys", json!({ "errcode": 0, "UserId": "", "OpenId": "o1" }), Some(Person::Outsider)),
        ("more than asked", json!({ "errcode": 0, "userid": "u1001", "user_ticket": "t" }), Some(member("u1001"))),
        ("nobody", json!({ "errcode": 0, "errmsg": "ok" }), None),
        ("nobody, empty", json!({ "errcode": 0, "userid": "", "openid": "" }), None),
        ("a number for a userid", json!({ "errcode": 0, "userid": 1001 }), None),
        ("two members", json!({ "errcode": 0, "userid": "u1001", "UserId": "m5001" }), None),
        ("no userid grammar", json!({ "errcode": 0, "userid": "u1001\r\nx: y" }), None),
        ("no corporation", json!({ "errcode": 0, "userid": "/p7001" }), None),
        ("no linked userid", json!({ "errcode": 0, "userid": "wwpartner/" }), None),
        ("two slashes", json!({ "errcode": 0, "userid": "wwpartner/a/b" }), None),
        ("a text for errcode", json!({ "errcode": "0", "userid": "u1001" }), None),
        ("null for errcode", json!({ "errcode": null, "userid": "u1001" }), None),
        ("a list", json!([{ "userid": "u1001" }]), None),
        ("a list in the order of our fields", json!(["u1001", "o1"]), None),
    ];
    for (case, body, expected) in table {
        let found = identify(StatusCode::OK, body.to_string()).await;
        match expected {
            Some(person) => assert_eq!(found.as_ref(), Ok(person), "{case}"),
            None => assert_eq!(found.unwrap_err().class(), "unavailable", "{case}"),
        }
    }
}

#[tokio::test]
async fn nonsense_is_unavailable_and_shows_no_secret() {
    let good = json!({ "errcode": 0, "userid": "u1001" }).to_string();
    let long = json!({ "errcode": 0, "userid": "u1001", "more": "x".repeat(10 << 20) }).to_string();
    let deep = "[".repeat(10_000);
    let table: &[(&str, StatusCode, &str)] = &[
        ("a page", StatusCode::OK, "<!doctype html><title>maintenance</title>"),
        ("nothing", StatusCode::OK, ""),
        ("half an answer", StatusCode::OK, &good[..good.len() - 3]),
        ("two answers", StatusCode::OK, &format!("{good}{good}")),
        ("ten megabytes", StatusCode::OK, &long),
        ("ten thousand deep", StatusCode::OK, &deep),
        ("a redirect", StatusCode::FOUND, &good),
        ("a server's fault", StatusCode::BAD_GATEWAY, &good),
        ("created", StatusCode::CREATED, &good),
    ];
    for (case, status, body) in table {
        let error = identify(*status, *body).await.unwrap_err();
        assert_eq!(error.class(), "unavailable", "{case}");
        assert_shows_nothing(&error);
    }
}

#[tokio::test]
async fn each_errcode_has_its_meaning() {
    let table: &[(i64, &str, &str)] = &[
        (40029, "invalid_code", ""),
        (42003, "invalid_code", ""),
        (60111, "unknown_member", ""),
        (46004, "unknown_member", ""),
        (40003, "unknown_member", ""),
        (50002, "not_visible", "visible range"),
        (60021, "not_visible", "visible range"),
        (40001, "configuration", "platform.secret_file"),
        (40091, "configuration", "platform.secret_file"),
        (40013, "configuration", "platform.corp_id"),
        (48002, "configuration", "platform.agent_id"),
        (50003, "configuration", "platform.agent_id"),
        (50001, "configuration", "server.public_url"),
        (60020, "configuration", "trusted IP addresses"),
        (-1, "unavailable", "errcode -1"),
        (45009, "unavailable", "errcode 45009"),
        (41001, "unavailable", "errcode 41001"),
    ];
    for (errcode, class, named) in table {
        let body = json!({ "errcode": errcode, "errmsg": format!("ok {TOKEN}"), "userid": "u1001" });
        let error = identify(StatusCode::OK, body.to_string()).await.unwrap_err();
        assert_eq!(error.class(), *class, "{errcode}");
        assert!(error.to_string().contains(named), "{errcode}: {error}");
        assert_shows_nothing(&error);
    }
}

#[tokio::test]
async fn a_profile_that_the_platform_keeps_to_itself_is_no_obstacle() {
    let active = |name: &str| Profile {
        name: name.to_owned(),
        department: String::new(),
        avatar: String::new(),
        status: MemberStatus::Active,
    };
    let pictured = Profile { avatar: "https://a.example/p".to_owned(), ..active("Ann") };
    let inactive = Profile { status: MemberStatus::Inactive, ..active("Ann") };
    let unavailable = |why: &str| Err(PlatformError::Unavailable(why.to_owned()));
    let table: &[(&str, Value, Result<Profile, PlatformError>)] = &[
        ("out of sight", json!({ "errcode": 60011 }), Ok(active(""))),
        ("no name", json!({ "userid": "u1001", "status": 1 }), Ok(active(""))),
        ("another spelling", json!({ "userid": "U1001", "name": "Ann", "status": 1 }), Ok(active("Ann"))),
        (
            "old application",
            json!({ "userid": "u1001", "name": "Ann", "status": 1, "avatar": "https://a.example/p" }),
            Ok(pictured),
        ),
        ("not activated", json!({ "userid": "u1001", "name": "Ann", "status": 4 }), Ok(inactive.clone())),
        ("gone", json!({ "userid": "u1001", "name": "Ann", "status": 5 }), Ok(inactive.clone())),
        ("no status", json!({ "userid": "u1001", "name": "Ann" }), Ok(inactive)),
        (
            "somebody else",
            json!({ "userid": "m5001", "name": "Ann", "status": 1 }),
            unavailable("the profile of another member"),
        ),
        ("busy", json!({ "errcode": -1 }), unavailable("errcode -1")),
    ];
    for (case, body, expected) in table {
        let client = client_hearing(StatusCode::OK, body.to_string()).await;
        assert_eq!(client.profile(&member("u1001")).await, *expected, "{case}");
    }
}

#[tokio::test]
async fn a_department_that_is_not_told_is_left_empty() {
    let token = json!({ "access_token": TOKEN, "expires_in": 7200 }).to_string();
    let user = json!({ "userid": "u1001", "name": "Ann", "status": 1, "department": [7] }).to_string();
    for errcode in [60011, 60003, 48002, -1] {
        let (token, user) = (token.clone(), user.clone());
        let router = Router::new()
            .route(path::TOKEN, get(|| async { token }))
            .route(path::USER, get(|| async { user }))
            .route(path::DEPARTMENT, get(move || async move { json!({ "errcode": errcode }).to_string() }));
        let found = client_of(&serve(router).await).profile(&member("u1001")).await;
        assert_eq!(found.unwrap().department, "", "{errcode}");
    }
}

#[tokio::test]
async fn a_token_that_is_always_refused_is_not_fetched_for_ever() {
    let (tokens, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counting = |counter: &Arc<AtomicUsize>, body: Value| {
        let counter = Arc::clone(counter);
        get(move || async move {
            counter.fetch_add(1, Ordering::SeqCst);
            body.to_string()
        })
    };
    let router = Router::new()
        .route(path::TOKEN, counting(&tokens, json!({ "access_token": TOKEN, "expires_in": 7200 })))
        .route(path::USER_INFO, counting(&calls, json!({ "errcode": 42001 })));
    let found = client_of(&serve(router).await).identify("code").await;
    assert_eq!(found, Err(PlatformError::Unavailable("errcode 42001".to_owned())));
    assert_eq!((tokens.load(Ordering::SeqCst), calls.load(Ordering::SeqCst)), (2, 2));
}

#[tokio::test]
async fn a_platform_out_of_reach_is_unavailable_and_shows_no_secret() {
    let closed = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap()
    };
    // Plain HTTP where TLS is expected: the handshake fails, and nothing falls back.
    let mut not_tls = serve(Router::new()).await;
    not_tls.set_scheme("https").unwrap();
    for (case, url) in [("nobody listens", closed), ("no TLS", not_tls)] {
        // Where the system has no root certificates, there is no client for the second at all.
        let error = match WecomPlatform::new(settings("https://wecom.example/authorize", url.as_str())) {
            Ok(client) => client.identify("code").await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.class(), "unavailable", "{case}");
        assert_shows_nothing(&error);
    }

    let never = || async { std::future::pending::<Response>().await.into_response() };
    let silent = serve(Router::new().fallback(get(never))).await;
    let mut settings = settings("https://wecom.example/authorize", silent.as_str());
    settings.timeout = Duration::from_millis(50);
    let found = WecomPlatform::new(settings).unwrap().identify("code").await;
    assert_eq!(found, Err(PlatformError::Unavailable("no answer in time".to_owned())));
}

fn assert_shows_nothing(error: &PlatformError) {
    let text = format!("{error} {error:?}");
    for secret in [TOKEN, SECRET, "code-that-must-not-show", "http://", "https://", "cgi-bin", "access_token="] {
        assert!(!text.contains(secret), "{text}");
    }
}

//! Responses that the platform should not send.

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

/// A client of a platform that issues a token and then sends this response to every call.
async fn client_receiving(status: StatusCode, body: impl Into<String>) -> WecomPlatform {
    let body: String = body.into();
    let token = json!({ "access_token": TOKEN, "expires_in": 7200 }).to_string();
    let response = move || async move { (status, [("location", "/elsewhere")], body.clone()) };
    // The target of the redirect responds with a person: a client that followed it would be noticed.
    let elsewhere = get(|| async { json!({ "errcode": 0, "userid": "u1001" }).to_string() });
    let router = Router::new().route(path::TOKEN, get(|| async { token })).route("/elsewhere", elsewhere);
    let router = router.fallback(get(response));
    client_of(&serve(router).await)
}

async fn identify(status: StatusCode, body: impl Into<String>) -> Result<Person, PlatformError> {
    client_receiving(status, body).await.identify("code-that-must-not-show").await
}

#[tokio::test]
async fn a_person_is_read_from_current_and_legacy_keys() {
    let table: &[(&str, Value, Option<Person>)] = &[
        ("no errcode", json!({ "userid": "u1001" }), Some(member("u1001"))),
        ("older keys", json!({ "errcode": 0, "UserId": "u1001", "DeviceId": "" }), Some(member("u1001"))),
        ("an outsider", json!({ "errcode": 0, "openid": "o1" }), Some(Person::Outsider)),
        ("an outsider, older keys", json!({ "errcode": 0, "UserId": "", "OpenId": "o1" }), Some(Person::Outsider)),
        ("further fields", json!({ "errcode": 0, "userid": "u1001", "user_ticket": "t" }), Some(member("u1001"))),
        ("no user", json!({ "errcode": 0, "errmsg": "ok" }), None),
        ("no user, empty fields", json!({ "errcode": 0, "userid": "", "openid": "" }), None),
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
async fn an_invalid_response_is_unavailable_and_its_error_shows_no_secret() {
    let good = json!({ "errcode": 0, "userid": "u1001" }).to_string();
    let long = json!({ "errcode": 0, "userid": "u1001", "more": "x".repeat(10 << 20) }).to_string();
    let deep = "[".repeat(10_000);
    let table: &[(&str, StatusCode, &str)] = &[
        ("a page", StatusCode::OK, "<!doctype html><title>maintenance</title>"),
        ("nothing", StatusCode::OK, ""),
        ("half a response", StatusCode::OK, &good[..good.len() - 3]),
        ("two responses", StatusCode::OK, &format!("{good}{good}")),
        ("ten megabytes", StatusCode::OK, &long),
        ("ten thousand deep", StatusCode::OK, &deep),
        ("a redirect", StatusCode::FOUND, &good),
        ("a server's fault", StatusCode::BAD_GATEWAY, &good),
        ("created", StatusCode::CREATED, &good),
    ];
    for (case, status, body) in table {
        let error = identify(*status, *body).await.unwrap_err();
        assert_eq!(error.class(), "unavailable", "{case}");
        assert_no_secret(&error);
    }
}

#[tokio::test]
async fn each_errcode_maps_to_its_class() {
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
        assert_no_secret(&error);
    }
}

#[tokio::test]
async fn a_profile_may_be_undisclosed() {
    let active = |name: &str| Profile {
        name: name.to_owned(),
        department: String::new(),
        avatar: String::new(),
        status: MemberStatus::Active,
    };
    let pictured = Profile { avatar: "https://a.example/p".to_owned(), ..active("Ann") };
    let inactive = |reason| Ok(Profile { status: MemberStatus::Inactive(reason), ..active("Ann") });
    let undisclosed = |status| Ok(Profile::undisclosed(status));
    let unavailable = |why: &str| Err(PlatformError::Unavailable(why.to_owned()));
    let table: &[(&str, Value, Result<Profile, PlatformError>)] = &[
        ("no privilege", json!({ "errcode": 60011 }), undisclosed(MemberStatus::OutOfSight)),
        ("out of range", json!({ "errcode": 60021 }), undisclosed(MemberStatus::OutOfSight)),
        ("no such member", json!({ "errcode": 60111 }), undisclosed(MemberStatus::Inactive(InactiveReason::Gone))),
        ("no name", json!({ "userid": "u1001", "status": 1 }), Ok(active(""))),
        ("another spelling", json!({ "userid": "U1001", "name": "Ann", "status": 1 }), Ok(active("Ann"))),
        (
            "old application",
            json!({ "userid": "u1001", "name": "Ann", "status": 1, "avatar": "https://a.example/p" }),
            Ok(pictured),
        ),
        ("disabled", json!({ "userid": "u1001", "name": "Ann", "status": 2 }), inactive(InactiveReason::Disabled)),
        (
            "not activated",
            json!({ "userid": "u1001", "name": "Ann", "status": 4 }),
            inactive(InactiveReason::NotActivated),
        ),
        ("left", json!({ "userid": "u1001", "name": "Ann", "status": 5 }), inactive(InactiveReason::Left)),
        // No word about the member: it lets no one in, and disables no one either.
        ("no status", json!({ "userid": "u1001", "name": "Ann" }), unavailable("a member without a known status")),
        (
            "an unknown status",
            json!({ "userid": "u1001", "name": "Ann", "status": 3 }),
            unavailable("a member without a known status"),
        ),
        (
            "another member",
            json!({ "userid": "m5001", "name": "Ann", "status": 1 }),
            unavailable("the profile of another member"),
        ),
        ("busy", json!({ "errcode": -1 }), unavailable("errcode -1")),
    ];
    for (case, body, expected) in table {
        let client = client_receiving(StatusCode::OK, body.to_string()).await;
        assert_eq!(client.profile(&member("u1001")).await, *expected, "{case}");
    }
}

#[tokio::test]
async fn an_undisclosed_department_is_empty() {
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
async fn a_token_that_is_always_rejected_is_fetched_twice() {
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
async fn an_unreachable_platform_is_unavailable_and_its_error_shows_no_secret() {
    let closed = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap()
    };
    // Plain HTTP where TLS is expected: the handshake fails, without a fallback.
    let mut not_tls = serve(Router::new()).await;
    not_tls.set_scheme("https").unwrap();
    for (case, url) in [("nothing listens", closed), ("no TLS", not_tls)] {
        // Without root certificates on the system, building the TLS client already fails.
        let error = match WecomPlatform::new(settings("https://wecom.example/authorize", url.as_str())) {
            Ok(client) => client.identify("code").await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.class(), "unavailable", "{case}");
        assert_no_secret(&error);
    }

    let never = || async { std::future::pending::<Response>().await.into_response() };
    let silent = serve(Router::new().fallback(get(never))).await;
    let mut settings = settings("https://wecom.example/authorize", silent.as_str());
    settings.timeout = Duration::from_millis(50);
    let found = WecomPlatform::new(settings).unwrap().identify("code").await;
    assert_eq!(found, Err(PlatformError::Unavailable("no response in time".to_owned())));
}

fn assert_no_secret(error: &PlatformError) {
    let text = format!("{error} {error:?}");
    for secret in [TOKEN, SECRET, "code-that-must-not-show", "http://", "https://", "cgi-bin", "access_token="] {
        assert!(!text.contains(secret), "{text}");
    }
}

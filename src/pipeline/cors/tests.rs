use super::*;

fn url(text: &str) -> url::Url {
    text.parse().expect("a URL")
}

fn policy(origins: &[&str]) -> CorsPolicy {
    let mut config = Config::default();
    config.cors.origins = origins.iter().map(|origin| url(origin)).collect();
    CorsPolicy::new(&config)
}

#[test]
fn origins_are_the_clients_and_the_configured_ones_without_our_own() {
    let mut config = Config::default();
    config.server.public_url = url("https://gate.example");
    config.clients.h5 = url("https://desk.example/h5/");
    config.clients.itagent = url("https://gate.example/itagent/");
    config.clients.itadmin = url("https://desk.example/itadmin/");
    config.cors.origins =
        ["https://desk.example", "http://localhost:5173", "https://gate.example:443"].map(url).to_vec();
    let policy = CorsPolicy::new(&config);
    let names: Vec<&[u8]> = policy.origins.iter().map(|origin| origin.name.as_bytes()).collect();
    assert_eq!(names, [&b"https://desk.example"[..], b"http://localhost:5173"]);
}

#[test]
fn only_exact_origins_are_allowed() {
    let policy = policy(&["https://desk.example"]);
    assert!(matches!(CorsPolicy::new(&Config::default()).cross_origin(None), CrossOrigin::Off));
    let is_allowed = |origin: &str| matches!(policy.cross_origin(Some(origin.as_bytes())), CrossOrigin::Allowed(_));
    assert!(is_allowed("https://desk.example"));
    for origin in [
        "http://desk.example",
        "https://desk.example:444",
        "https://desk.example.evil.example",
        "https://evil.desk.example",
        "https://desk.example/",
        "https://user@desk.example",
        "HTTPS://DESK.EXAMPLE",
        "null",
        "*",
        "",
    ] {
        assert!(!is_allowed(origin), "{origin}");
    }
}

#[test]
fn vary_is_added_once_beside_what_the_upstream_says() {
    let policy = policy(&["https://desk.example"]);
    let table: &[(&[&str], &[&str])] = &[
        (&[], &["Origin"]),
        (&["Accept-Encoding"], &["Accept-Encoding", "Origin"]),
        (&["accept, origin"], &["accept, origin"]),
        (&["*"], &["*"]),
    ];
    for origin in [None, Some(&b"https://desk.example"[..]), Some(b"https://evil.example")] {
        for (before, after) in table {
            let mut headers = HeaderMap::new();
            for line in *before {
                headers.append(VARY, HeaderValue::from_static(line));
            }
            policy.cross_origin(origin).write(&mut headers);
            assert_eq!(headers.get_all(VARY).iter().collect::<Vec<_>>(), *after, "{origin:?}");
        }
    }
}

#[test]
fn only_headers_that_are_let_through_are_allowed() {
    for name in ["authorization", "content-type", "Accept-Language", "if-match", "traceparent", "x-csrf-token"] {
        assert!(is_let_through(name), "{name}");
    }
    for name in [
        "x-deskgate-roles",
        "x_deskgate_roles",
        "x-forwarded-for",
        "forwarded",
        "x-http-method-override",
        "true-client-ip",
        "proxy",
        "x-request-id",
        "connection",
        "transfer-encoding",
        "host",
        "cookie",
        "",
        "a b",
        "a\u{e9}",
    ] {
        assert!(!is_let_through(name), "{name}");
    }
}

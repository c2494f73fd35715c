//! Trusted domains and denied client addresses.

use super::*;
use crate::demo::link::domain;

#[test]
fn a_trusted_domain_matches_exactly_with_its_port() {
    let table = [
        ("the same", "mail.qq.com:8080", "http://mail.qq.com:8080/cgi-bin/helloworld", true),
        ("another host", "email.qq.com", "http://mail.qq.com:8080/cgi-bin/helloworld", false),
        ("a sub-domain", "support.mail.qq.com", "http://mail.qq.com:8080/cgi-bin/helloworld", false),
        ("a wildcard", "*.qq.com", "http://mail.qq.com:8080/cgi-bin/helloworld", false),
        ("no port", "mail.qq.com", "http://mail.qq.com:8080/cgi-bin/helloworld", false),
        ("the same, encrypted", "mail.qq.com", "https://mail.qq.com/cgi-bin/helloworld", true),
        ("another path", "mail.qq.com", "http://mail.qq.com/cgi-bin/redirect", true),
        ("another host, encrypted", "mail.qq.com", "https://exmail.qq.com/cgi-bin/helloworld", false),
        ("the scheme's own port", "mail.qq.com", "https://mail.qq.com:443/", true),
        ("other letters", "Mail.QQ.com", "http://mail.qq.com/", true),
    ];
    for (case, trusted, address, expected) in table {
        let trusted_domains = [(AGENT_ID.to_owned(), vec![trusted.to_owned()])].into();
        let switches = Switches { trusted_domains, ..Switches::default() };
        let domain = domain(&Url::parse(address).unwrap());
        assert_eq!(switches.trusts(&APPLICATIONS[0], &domain), expected, "{case}");
    }
}

#[tokio::test]
async fn the_page_checks_the_corporations_domains_and_the_exchange_the_applications() {
    let (simulator, _) = simulator().await;
    let (ours, others) = (token_of(&simulator, SECRET).await, token_of(&simulator, APPLICATIONS[1].secret).await);
    simulator.switches(|switches| {
        let domains = |domain: &str| vec![domain.to_owned()];
        switches.trusted_domains = [
            (AGENT_ID.to_owned(), domains("a.example")),
            (APPLICATIONS[1].agent_id.to_owned(), domains("b.example:8080")),
        ]
        .into();
    });
    let table = [
        ("ours", "https://a.example/cb", &ours, Some(0)),
        ("theirs, their token", "http://b.example:8080/cb", &others, Some(0)),
        ("theirs, our token", "http://b.example:8080/cb", &ours, Some(50001)),
        ("untrusted", "http://b.example/cb", &ours, None),
        ("untrusted, a sub-domain", "https://x.a.example/cb", &ours, None),
    ];
    for (case, back, token, expected) in table {
        let seen = open(authorize_url(&simulator, &[("redirect_uri", back), ("as", "u1001")])).await;
        let Some(expected) = expected else {
            let place = simulator.api_url().join(seen.location()).unwrap();
            assert_eq!(place.path(), path::URI_CONFIRM, "{case}");
            assert_eq!(query_of(place.as_str(), "err_type").as_deref(), Some("domain_err"), "{case}");
            assert_eq!(query_of(place.as_str(), "uri").as_deref(), Some(back), "{case}");
            let page = open(place).await;
            assert!(
                page.text.contains("redirect_uri需使用应用可信域名") && unescape(&page.text).contains(back),
                "{case}"
            );
            continue;
        };
        let code = query_of(seen.location(), "code").unwrap();
        let query = [("access_token", token.as_str()), ("code", &code)];
        assert_eq!(errcode(&simulator, path::USER_INFO, &query).await, expected, "{case}");
        if expected == 50001 {
            let query = [("access_token", others.as_str()), ("code", &code)];
            assert_eq!(
                errcode(&simulator, path::USER_INFO, &query).await,
                0,
                "{case}: a rejected exchange leaves the code usable"
            );
        }
    }
}

#[tokio::test]
async fn trust_replaces_the_trusted_domains() {
    let (simulator, _) = simulator().await;
    simulator.trust(&["desk.example"]);
    assert!(open(authorize_url(&simulator, &[("as", "u1001")])).await.location().starts_with("https://desk.example/"));
    simulator.trust(&[]);
    assert!(open(authorize_url(&simulator, &[("as", "u1001")])).await.location().starts_with(path::URI_CONFIRM));
}

#[tokio::test]
async fn a_redirect_uri_encoded_twice_is_untrusted() {
    let (simulator, _) = simulator().await;
    let twice = "https%3A%2F%2Fdesk.example%2F";
    let seen = open(authorize_url(&simulator, &[("redirect_uri", twice), ("as", "u1001")])).await;
    assert_eq!(seen.status, StatusCode::FOUND);
    assert!(seen.location().starts_with(path::URI_CONFIRM), "{}", seen.location());
    assert_eq!(open(simulator.api_url().join(seen.location()).unwrap()).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_denied_address_can_fetch_a_token_and_nothing_else() {
    let (simulator, _) = simulator().await;
    let table = [("127.0.0.1/32", 60020), ("127.0.0.0/8", 60020), ("10.0.0.0/8", 0), ("::1/128", 0)];
    for (denied, expected) in table {
        simulator.switches(|switches| switches.denied_addresses = vec![denied.parse().unwrap()]);
        let token = token_of(&simulator, SECRET).await;
        let query = [("access_token", token.as_str()), ("userid", "u1001")];
        assert_eq!(errcode(&simulator, path::USER, &query).await, expected, "{denied}");
    }
}

//! Rows 1 to 33 of the hardening table: tokens that are almost right, and right ones in the wrong place.
//!
//! Every bad token is tried at a ruled path, at one of our own endpoints, at `/api/auth/verify` and as the
//! subprotocol of a WebSocket handshake; the upstream must not hear of any. Where a row is about something
//! else than the signature, the token is signed with the gateway's own key: only that something is wrong.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use tokio::net::TcpListener;

use crate::support::*;

/// A gateway, a live session, and the key that signed it.
struct Bench {
    desk: Gateway,
    xiaoming: Client,
    key: Signer,
    header: Value,
    claims: Value,
}

impl Bench {
    async fn new() -> Bench {
        Bench::with("").await
    }

    async fn with(settings: &str) -> Bench {
        let desk = Gateway::with(settings).await;
        let xiaoming = desk.sign_in("u1001").await;
        let key = Signer::of_gateway(&desk, xiaoming.token());
        let (header, claims) = (header_of(xiaoming.token()), claims_of(xiaoming.token()));
        Bench { desk, xiaoming, key, header, claims }
    }

    /// The session's claims with one of them replaced.
    fn claims_with(&self, name: &str, value: Value) -> Value {
        let mut claims = self.claims.clone();
        claims[name] = value;
        claims
    }

    /// The session's claims with one of them left out.
    fn claims_without(&self, name: &str) -> Value {
        let mut claims = self.claims.clone();
        claims.as_object_mut().expect("an object").remove(name).expect("a claim");
        claims
    }

    /// The token's header with one member replaced or added.
    fn header_with(&self, name: &str, value: Value) -> Value {
        let mut header = self.header.clone();
        header[name] = value;
        header
    }

    /// The session's claims as text, with one of them given as raw JSON.
    fn claims_raw(&self, name: &str, raw: &str) -> String {
        self.claims_with(name, json!("@raw@")).to_string().replace("\"@raw@\"", raw)
    }

    /// Signed by the gateway's key.
    fn signed(&self, header: &Value, claims: &Value) -> String {
        self.key.token(header, claims)
    }

    /// Fails unless the token is refused wherever it may be shown.
    async fn refuses(&self, case: &str, token: &str) {
        let slug: String = case.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        if token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let bearer = self.desk.with_token(token);
            bearer.get(&format!("/api/desk/{slug}")).await.expect_invalid_token();
            bearer.get("/api/auth/me").await.expect_invalid_token();
            match self
                .desk
                .anonymous()
                .handshake(&format!("/ws/employee?case={slug}"))
                .protocols(&[&format!("bearer.{token}")])
                .open()
                .await
            {
                Ok(_) => panic!("{case}: the handshake was accepted"),
                Err(response) => assert!(matches!(response.status, 400 | 401), "{case}: {}", response.describe()),
            }
        }
        self.is_not_valid(case, token).await;
        assert!(self.desk.upstream.requests().is_empty(), "{case}: the upstream heard of it");
    }

    /// Fails unless `/api/auth/verify` says no and nothing more.
    async fn is_not_valid(&self, case: &str, token: &str) {
        let response = self.desk.anonymous().post_json("/api/auth/verify", &json!({ "token": token })).await;
        let data = response.expect_code(0).data();
        assert_eq!(data["valid"], false, "{case}: {data}");
        for member in ["employee_id", "name", "current_role", "login_source"] {
            assert!(data[member].as_str().unwrap_or_default().is_empty(), "{case}: {member} of {data}");
        }
    }

    /// Fails unless the session itself is still good: whatever was refused was refused for its own sake.
    async fn still_stands(&self) {
        self.xiaoming.get("/api/auth/me").await.expect_code(0);
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("a time of this age")
}

fn hs256(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    format!("{message}.{}", base64url(hmac::sign(&key, message.as_bytes())))
}

#[tokio::test]
async fn token_forged_with_the_gateways_key_is_accepted() {
    let bench = Bench::new().await;
    let token = bench.xiaoming.token();
    let parts: Vec<Vec<u8>> = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).expect("base64url")).collect();
    assert_eq!(bench.key.token_of_text(&parts[0], &parts[1]), token, "the same bytes get the same signature");
}

#[tokio::test]
async fn unsigned_tokens_are_refused() {
    let bench = Bench::new().await;
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        let header = bench.header_with("alg", json!(alg));
        let message = format!("{}.{}", base64url(header.to_string()), base64url(bench.claims.to_string()));
        bench.refuses(&format!("alg {alg}, empty signature"), &format!("{message}.")).await;
        bench.refuses(&format!("alg {alg}, no signature"), &message).await;
        bench.refuses(&format!("alg {alg}, well signed"), &bench.signed(&header, &bench.claims)).await;
    }
    let (message, _) = bench.xiaoming.token().rsplit_once('.').expect("a signature");
    bench.refuses("signature removed, dot kept", &format!("{message}.")).await;
    bench.refuses("signature removed with its dot", message).await;
    bench.refuses("signature of zeros", &format!("{message}.{}", base64url([0; 64]))).await;
    bench.refuses("half a signature", &format!("{message}.{}", base64url([1; 32]))).await;
    bench.still_stands().await;
}

#[tokio::test]
async fn hmac_with_the_public_key_is_refused() {
    for algorithm in ["EdDSA", "ES256"] {
        let bench = Bench::with(&format!("[token]\nalgorithm = \"{algorithm}\"")).await;
        let raw = bench.key.public_key();
        let prefix: &[u8] = match algorithm {
            "EdDSA" => &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00],
            _ => &[
                0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
                0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
            ],
        };
        let der = [prefix, &raw].concat();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(&der));
        let jwks = bench.desk.anonymous().get("/.well-known/jwks.json").await.body;
        let header = bench.header_with("alg", json!("HS256"));
        for (case, secret) in [
            ("raw", raw.as_slice()),
            ("DER", &der),
            ("PEM", pem.as_bytes()),
            ("PEM without its last line break", pem.trim_end().as_bytes()),
            ("the JWK set", &jwks),
        ] {
            let token = hs256(secret, &header, &bench.claims);
            bench.refuses(&format!("{algorithm} public key as HMAC secret, {case}"), &token).await;
        }
        bench.still_stands().await;
    }
}

#[tokio::test]
async fn hmac_with_common_secrets_is_refused() {
    let bench = Bench::new().await;
    let header = bench.header_with("alg", json!("HS256"));
    for secret in [
        "",
        "secret",
        "password",
        "changeme",
        "deskgate",
        "your-256-bit-secret",
        "key",
        "jwt",
        "test",
        "admin",
        "123456",
        "default",
        "secret123",
        "supersecret",
        "my_secret_key",
        "qwerty",
        "private",
        "token",
        "hmac",
        "\0",
    ] {
        bench.refuses(&format!("HS256 with `{secret}`"), &hs256(secret.as_bytes(), &header, &bench.claims)).await;
    }
}

#[tokio::test]
async fn algorithm_must_match_the_key() {
    let bench = Bench::new().await;
    for alg in ["HS256", "HS384", "ES256", "ES384", "RS256", "PS256", "Ed25519", "EDDSA", "eddsa", "EdDSA "] {
        let header = bench.header_with("alg", json!(alg));
        bench.refuses(&format!("signed as EdDSA, alg {alg}"), &bench.signed(&header, &bench.claims)).await;
    }
    for alg in [json!(null), json!(1), json!(["EdDSA"]), json!({})] {
        let header = bench.header_with("alg", alg.clone());
        bench.refuses(&format!("alg {alg}"), &bench.signed(&header, &bench.claims)).await;
    }
    let mut without = bench.header.clone();
    without.as_object_mut().expect("an object").remove("alg");
    bench.refuses("no alg", &bench.signed(&without, &bench.claims)).await;
    let other = Signer::unknown_p256();
    let header = bench.header_with("alg", json!("ES256"));
    bench.refuses("ES256 by a stranger under our kid", &other.token(&header, &bench.claims)).await;
}

#[tokio::test]
async fn kid_is_only_looked_up() {
    let bench = Bench::new().await;
    let known = bench.header["kid"].as_str().expect("a kid").to_owned();
    let kids = [
        json!("../../dev/null"),
        json!("../../../../../../dev/null"),
        json!(format!("./{known}")),
        json!(format!("{known}.pem")),
        json!("' OR 1=1--"),
        json!("\0"),
        json!(format!("{known}\0")),
        json!(known.to_ascii_uppercase() + "x"),
        json!("k".repeat(4000)),
        json!(""),
        json!(1),
        json!([known]),
        json!({ "kid": known }),
        json!(null),
        json!("|id"),
    ];
    let empty = Signer::unknown_ed25519();
    for kid in kids {
        let header = bench.header_with("kid", kid.clone());
        let case: String = format!("kid {kid}").chars().take(60).collect();
        bench.refuses(&case, &bench.signed(&header, &bench.claims)).await;
        bench.refuses(&case, &empty.token(&header, &bench.claims)).await;
        let hmac_header = {
            let mut header = header.clone();
            header["alg"] = json!("HS256");
            header
        };
        bench.refuses(&case, &hs256(b"", &hmac_header, &bench.claims)).await;
    }
    let mut without = bench.header.clone();
    without.as_object_mut().expect("an object").remove("kid");
    bench.refuses("no kid", &bench.signed(&without, &bench.claims)).await;
    bench.still_stands().await;
}

#[tokio::test]
async fn jku_and_x5u_are_never_fetched() {
    let bench = Bench::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}/keys.json", listener.local_addr().expect("an address"));
    let stranger = Signer::unknown_ed25519();
    for member in ["jku", "x5u"] {
        for kid in [bench.header["kid"].clone(), json!("theirs")] {
            let mut header = bench.header_with(member, json!(address));
            header["kid"] = kid;
            bench.refuses(member, &stranger.token(&header, &bench.claims)).await;
            bench.refuses(member, &bench.signed(&header, &bench.claims)).await;
        }
    }
    let upstream_connection = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(upstream_connection.is_err(), "somebody came for the keys");
}

#[tokio::test]
async fn embedded_keys_are_not_used() {
    let bench = Bench::new().await;
    let stranger = Signer::unknown_ed25519();
    let jwk =
        json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(stranger.public_key()), "kid": bench.header["kid"] });
    for (member, value) in [("jwk", jwk), ("x5c", json!([STANDARD.encode(stranger.public_key())]))] {
        let header = bench.header_with(member, value);
        bench.refuses(member, &stranger.token(&header, &bench.claims)).await;
        bench.refuses(&format!("{member}, but signed by us"), &bench.signed(&header, &bench.claims)).await;
    }
    bench.refuses("a stranger's key under our kid", &stranger.token(&bench.header, &bench.claims)).await;
}

#[tokio::test]
async fn crit_headers_are_refused() {
    let bench = Bench::new().await;
    for crit in [json!(["exp"]), json!(["b64"]), json!([]), json!(["unheard-of"]), json!("exp"), json!(null)] {
        let mut header = bench.header_with("crit", crit.clone());
        bench.refuses(&format!("crit {crit}"), &bench.signed(&header, &bench.claims)).await;
        header["b64"] = json!(false);
        bench.refuses(&format!("crit {crit} and b64"), &bench.signed(&header, &bench.claims)).await;
    }
}

#[tokio::test]
async fn expired_tokens_are_refused() {
    let bench = Bench::new().await;
    let leeway = 30;
    bench
        .refuses(
            "past by the leeway",
            &bench.signed(&bench.header, &bench.claims_with("exp", json!(now() - leeway - 1))),
        )
        .await;
    bench.refuses("long past", &bench.signed(&bench.header, &bench.claims_with("exp", json!(1)))).await;
    bench.refuses("missing", &bench.signed(&bench.header, &bench.claims_without("exp"))).await;
    let bench = Bench::with("[token]\nleeway = \"0s\"").await;
    bench.refuses("exactly now", &bench.signed(&bench.header, &bench.claims_with("exp", json!(now())))).await;
    bench.still_stands().await;
}

#[tokio::test]
async fn time_claims_must_be_integers() {
    let bench = Bench::new().await;
    for claim in ["exp", "nbf", "iat"] {
        let good = bench.claims[claim].to_string();
        for raw in [
            &format!("\"{good}\""),
            "1e400",
            "-1e400",
            &format!("-{good}"),
            &format!("[{good}]"),
            "null",
            "true",
            "{}",
            "NaN",
        ] {
            let token = bench.key.token_of_text(bench.header.to_string(), bench.claims_raw(claim, raw));
            bench.refuses(&format!("{claim} = {raw}"), &token).await;
        }
    }
    bench.still_stands().await;
}

#[tokio::test]
async fn tokens_from_the_future_are_refused() {
    let bench = Bench::new().await;
    for (case, claim, time) in [
        ("nbf beyond the leeway", "nbf", now() + 120),
        ("nbf tomorrow", "nbf", now() + 86_400),
        ("iat tomorrow", "iat", now() + 86_400),
    ] {
        bench.refuses(case, &bench.signed(&bench.header, &bench.claims_with(claim, json!(time)))).await;
    }
}

#[tokio::test]
async fn duplicate_claims_are_refused() {
    let bench = Bench::new().await;
    let claims = bench.claims.to_string();
    let inside = &claims[1..claims.len() - 1];
    let exp = bench.claims["exp"].to_string();
    for (name, other) in [
        ("sub", "\"m5001\""),
        ("roles", "[\"admin\"]"),
        ("exp", exp.as_str()),
        ("jti", "\"x\""),
        ("current_role", "\"admin\""),
    ] {
        for (place, text) in [
            ("before", format!("{{\"{name}\":{other},{inside}}}")),
            ("behind", format!("{{{inside},\"{name}\":{other}}}")),
        ] {
            let token = bench.key.token_of_text(bench.header.to_string(), text);
            bench.refuses(&format!("a second {name} {place} the first"), &token).await;
        }
    }
    let header = bench.header.to_string();
    let doubled = format!("{{\"alg\":\"none\",{}", &header[1..]);
    bench.refuses("a second alg", &bench.key.token_of_text(doubled, &claims)).await;
}

#[tokio::test]
async fn wrong_issuer_or_audience_is_refused() {
    let bench = Bench::new().await;
    let issuer = bench.desk.public_url();
    for (claim, value) in [
        ("iss", json!("https://evil.example")),
        ("iss", json!(format!("{issuer}/"))),
        ("iss", json!(format!("{issuer}.evil.example"))),
        ("iss", json!(null)),
        ("iss", json!([issuer])),
        ("iss", json!("")),
        ("aud", json!("helpdesk")),
        ("aud", json!("")),
        ("aud", json!(["helpdesk"])),
        ("aud", json!(["deskgate", "helpdesk"])),
        ("aud", json!([])),
        ("aud", json!(null)),
        ("aud", json!("Deskgate")),
    ] {
        let token = bench.signed(&bench.header, &bench.claims_with(claim, value.clone()));
        bench.refuses(&format!("{claim} = {value}"), &token).await;
    }
    for claim in ["iss", "aud"] {
        bench.refuses(&format!("no {claim}"), &bench.signed(&bench.header, &bench.claims_without(claim))).await;
    }
}

#[tokio::test]
async fn wrong_typ_is_refused() {
    let bench = Bench::new().await;
    for typ in [json!("JWT"), json!("at+jwt2"), json!("bind+jwt"), json!("id_token"), json!(""), json!(1), json!(null)]
    {
        let header = bench.header_with("typ", typ.clone());
        bench.refuses(&format!("typ {typ}"), &bench.signed(&header, &bench.claims)).await;
    }
    let mut without = bench.header.clone();
    without.as_object_mut().expect("an object").remove("typ");
    bench.refuses("no typ", &bench.signed(&without, &bench.claims)).await;
}

#[tokio::test]
async fn cookies_and_assertions_are_not_access_tokens() {
    let bench = Bench::new().await;
    bench.xiaoming.get("/api/desk/x").await.expect_status(200);
    let assertion = bench.desk.upstream.last_request().header("x-deskgate-assertion").expect("an assertion").to_owned();
    bench.desk.upstream.clear_requests();
    bench.refuses("the upstream's assertion", &assertion).await;

    let partner = bench.desk.phone("wwpartner/p7001");
    partner.authorize_url(&bench.desk.client_url("h5")).await;
    let flow = partner.client().jar().pairs();
    partner.oauth2(&bench.desk.client_url("h5")).await;
    let proof = partner.client().jar().pairs();
    assert!(!flow.is_empty() && !proof.is_empty());
    for (name, value) in flow.into_iter().chain(proof) {
        bench.refuses(&format!("the cookie {name}"), &value).await;
    }
    let ticket = bench.desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    bench.refuses("a ticket", ticket["ticket"].as_str().expect("a ticket")).await;
    bench.refuses("a session id", &jti_of(bench.xiaoming.token())).await;
}

#[tokio::test]
async fn token_without_a_live_session_is_refused() {
    let bench = Bench::new().await;
    for jti in [
        json!("nobody"),
        json!(""),
        json!("A".repeat(22)),
        json!(null),
        json!(1),
        json!(["a"]),
        json!("*"),
        json!("' OR 1=1--"),
    ] {
        let token = bench.signed(&bench.header, &bench.claims_with("jti", jti.clone()));
        bench.refuses(&format!("jti = {jti}"), &token).await;
    }
    bench.refuses("no jti", &bench.signed(&bench.header, &bench.claims_without("jti"))).await;
}

#[tokio::test]
async fn identity_comes_from_the_session_not_the_claims() {
    let bench = Bench::new().await;
    for (claim, value) in [
        ("sub", json!("m5001")),
        ("roles", json!(["admin", "user"])),
        ("corp_id", json!("wwpartner")),
        ("name", json!("Somebody Else")),
    ] {
        let mut claims = bench.claims_with(claim, value);
        if claim == "roles" {
            claims["current_role"] = json!("admin");
        }
        let somebody = bench.desk.with_token(&bench.signed(&bench.header, &claims));
        let response = somebody.get("/api/auth/me").await;
        if response.status == 200 {
            let own = bench.xiaoming.get("/api/auth/me").await.expect_code(0).data();
            assert_eq!(response.expect_code(0).data(), own, "{claim}");
        } else {
            response.expect_invalid_token();
        }
        let response = somebody.get("/api/admin-desk/x").await;
        assert!(matches!(response.status, 401 | 403), "{claim}: {}", response.describe());
    }
}

#[tokio::test]
async fn logout_revokes_the_token_on_64_connections() {
    let bench = Bench::new().await;
    let request = format!(
        "GET /api/desk/x HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        bench.desk.address(),
        bench.xiaoming.token()
    );
    let mut connections = Vec::new();
    for _ in 0..64 {
        let mut connection = bench.desk.connect().await;
        connection.send(request.as_bytes()).await;
        connection.response().await.expect("a response").expect_status(200);
        connections.push(connection);
    }
    bench.xiaoming.post("/api/auth/logout").await.expect_code(0);
    bench.desk.upstream.clear_requests();
    let asked = connections.into_iter().map(|mut connection| {
        let request = request.as_bytes();
        async move {
            connection.send(request).await;
            connection.response().await
        }
    });
    for response in futures::future::join_all(asked).await {
        response.expect("a response").expect_invalid_token();
    }
    assert!(bench.desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn non_canonical_base64_bits_are_refused() {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for algorithm in ["EdDSA", "ES256"] {
        let bench = Bench::with(&format!("[token]\nalgorithm = \"{algorithm}\"")).await;
        let token = bench.xiaoming.token();
        let last = *token.as_bytes().last().expect("a character");
        let place = ALPHABET.iter().position(|letter| *letter == last).expect("base64url");
        // 64 bytes fill 85 characters and two bits of the last one: four bits are left over.
        for change in 1..16 {
            let letter = char::from(ALPHABET[place ^ change]);
            let changed = format!("{}{letter}", &token[..token.len() - 1]);
            bench.refuses(&format!("{algorithm}, last character changed by {change}"), &changed).await;
        }
        bench.still_stands().await;
    }
}

#[tokio::test]
async fn only_unpadded_base64url_is_accepted() {
    let bench = Bench::new().await;
    let token = bench.xiaoming.token();
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("three parts") };
    let table = [
        ("padding behind the signature", format!("{token}==")),
        ("padding behind the header", format!("{header}=.{claims}.{signature}")),
        ("padding behind the claims", format!("{header}.{claims}==.{signature}")),
        ("a space inside", format!("{header}.{} {}.{signature}", &claims[..8], &claims[8..])),
        ("a line break inside", format!("{header}.{}\n{}.{signature}", &claims[..8], &claims[8..])),
        ("a line break behind", format!("{token}\n")),
        ("a space in front", format!(" {token}")),
        ("a tab behind", format!("{token}\t")),
        ("NUL behind", format!("{token}\0")),
        ("percent signs", format!("{header}%2E{claims}.{signature}")),
    ];
    for (case, changed) in table {
        bench.refuses(case, &changed).await;
    }
    if signature.contains(['-', '_']) {
        let standard = signature.replace('-', "+").replace('_', "/");
        bench.refuses("the other alphabet", &format!("{header}.{claims}.{standard}")).await;
    }
    bench.still_stands().await;
}

#[tokio::test]
async fn token_must_have_three_segments() {
    let bench = Bench::new().await;
    let token = bench.xiaoming.token();
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("three parts") };
    for (case, changed) in [
        ("one segment", header.to_owned()),
        ("two segments", format!("{header}.{claims}")),
        ("an empty fourth", format!("{token}.")),
        ("a fourth", format!("{token}.{signature}")),
        ("five", format!("{header}.{claims}.{claims}.{claims}.{signature}")),
        ("an empty header", format!(".{claims}.{signature}")),
        ("empty claims", format!("{header}..{signature}")),
        ("in front a dot", format!(".{token}")),
        ("JSON", json!({ "protected": header, "payload": claims, "signature": signature }).to_string()),
        ("twice", format!("{token}{token}")),
    ] {
        bench.refuses(case, &changed).await;
    }
}

#[tokio::test]
async fn oversized_tokens_are_refused() {
    let bench = Bench::new().await;
    let large = bench.signed(&bench.header, &bench.claims_with("name", json!("n".repeat(8192))));
    assert!(large.len() > 8192);
    let response = bench.desk.with_token(&large).get("/api/desk/x").await;
    assert!(matches!(response.code(), 1001 | 1431), "{}", response.describe());
    bench.is_not_valid("8 KB and more", &large).await;

    let huge = "a".repeat(1_000_000);
    let request =
        format!("GET /api/desk/x HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {huge}\r\n\r\n", bench.desk.address());
    if let Some(response) = bench.desk.send_raw(request.as_bytes()).await {
        assert!(matches!(response.code(), 1001 | 1431), "{}", response.describe());
    }
    bench.desk.anonymous().post_json("/api/auth/verify", &json!({ "token": huge })).await.expect_code(1413);
    assert!(bench.desk.upstream.requests().is_empty());
    bench.still_stands().await;
}

#[tokio::test]
async fn deeply_nested_or_many_claims_are_refused() {
    let bench = Bench::new().await;
    let claims = bench.claims.to_string();
    let inside = &claims[1..claims.len() - 1];
    let many: String = (0..300).map(|number| format!(",\"c{number}\":0")).collect();
    for (case, text) in [
        ("deep alone", format!("{}{}", "[".repeat(2500), "]".repeat(2500))),
        ("deep in a claim", format!("{{{inside},\"x\":{}{}}}", "[".repeat(2000), "]".repeat(2000))),
        ("deep and never closed", "{\"a\":".repeat(1000)),
        ("deep in roles", bench.claims_raw("roles", &format!("{}{}", "[".repeat(2000), "]".repeat(2000)))),
        ("crowded, without a session", format!("{{\"jti\":\"x\"{many}}}")),
    ] {
        bench.refuses(case, &bench.key.token_of_text(bench.header.to_string(), text)).await;
    }
    bench.still_stands().await;
}

#[tokio::test]
async fn claims_must_be_clean_utf8() {
    let bench = Bench::new().await;
    let claims = bench.claims.to_string();
    let with_bytes = |bytes: &[u8]| {
        let text = bench.claims_raw("sub", "\"@\"");
        let (before, after) = text.split_once('@').expect("a place");
        [before.as_bytes(), bytes, after.as_bytes()].concat()
    };
    let table: Vec<(&str, Vec<u8>)> = vec![
        ("no UTF-8", with_bytes(b"\xff\xfe")),
        ("an overlong slash", with_bytes(b"\xc0\xaf")),
        ("half a surrogate", with_bytes(b"\\ud800")),
        ("an encoded surrogate", with_bytes(b"\xed\xa0\x80")),
        ("a raw line break", with_bytes(b"a\nb")),
        ("a byte order mark", [b"\xef\xbb\xbf", claims.as_bytes()].concat()),
        ("UTF-16", claims.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("something behind", [claims.as_bytes(), b" x"].concat()),
        ("an array", b"[]".to_vec()),
        ("a text", b"\"u1001\"".to_vec()),
        ("nothing", Vec::new()),
        ("null", b"null".to_vec()),
    ];
    for (case, text) in table {
        bench.refuses(case, &bench.key.token_of_text(bench.header.to_string(), text)).await;
    }
    let header = bench.header.to_string();
    bench
        .refuses("a byte order mark before the header", &bench.key.token_of_text(format!("\u{feff}{header}"), &claims))
        .await;
    bench.refuses("a header with something behind", &bench.key.token_of_text(format!("{header}{{}}"), &claims)).await;
    bench.refuses("a header that is no object", &bench.key.token_of_text("[]", &claims)).await;
    // Not this session's name: refused, or the session's own name is used.
    for sub in ["u1001\u{202e}", "ｕ1001", "u1001\0", "u1001\r\nX-Deskgate-Roles: admin"] {
        let token = bench.signed(&bench.header, &bench.claims_with("sub", json!(sub)));
        bench.desk.with_token(&token).get("/api/desk/x").await;
        for seen in bench.desk.upstream.requests() {
            assert_eq!(seen.header("x-deskgate-employee-id"), Some("u1001"), "{sub:?}");
            assert_eq!(seen.header("x-deskgate-roles"), Some("user"), "{sub:?}");
        }
    }
}

#[tokio::test]
async fn roles_must_be_a_list_with_the_current_role() {
    let bench = Bench::new().await;
    for roles in [json!("admin"), json!({ "admin": true }), json!(null), json!([1]), json!([["user"]]), json!([null])] {
        let token = bench.signed(&bench.header, &bench.claims_with("roles", roles.clone()));
        bench.refuses(&format!("roles = {roles}"), &token).await;
    }
    for current in [json!("admin"), json!("User"), json!(""), json!(null), json!(["user"])] {
        let token = bench.signed(&bench.header, &bench.claims_with("current_role", current.clone()));
        bench.refuses(&format!("current_role = {current}"), &token).await;
    }
    for claim in ["roles", "current_role", "sub", "stage", "corp_id"] {
        let token = bench.signed(&bench.header, &bench.claims_without(claim));
        bench.refuses(&format!("no {claim}"), &token).await;
    }
    for stage in [json!("Full"), json!("half"), json!(""), json!(null), json!(1)] {
        let token = bench.signed(&bench.header, &bench.claims_with("stage", stage.clone()));
        bench.refuses(&format!("stage = {stage}"), &token).await;
    }
    bench.still_stands().await;
}

#[tokio::test]
async fn tokens_of_a_removed_key_are_refused() {
    let mut desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let kid = header_of(xiaoming.token())["kid"].as_str().expect("a kid").to_owned();
    desk.terminate().await;
    std::fs::remove_file(desk.data_dir().join("keys").join(format!("{kid}.pem"))).expect("the key's file");
    desk.restart().await;
    xiaoming.get("/api/auth/me").await.expect_invalid_token();
    xiaoming.get("/api/desk/x").await.expect_invalid_token();
    let again = desk.sign_in("u1001").await;
    assert_ne!(header_of(again.token())["kid"], kid.as_str());
    again.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn missing_token_gets_the_bare_challenge() {
    let desk = Gateway::start().await;
    for path in ["/api/desk/x", "/api/auth/me"] {
        desk.anonymous().get(path).await.expect_bare_challenge();
        for value in ["Bearer", "Bearer ", "Bearer     ", "bearer", ""] {
            desk.anonymous().with_header("Authorization", value).get(path).await.expect_bare_challenge();
        }
    }
    let response = desk.anonymous().handshake("/ws/employee").expect_refused().await;
    response.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn bearer_scheme_is_case_insensitive() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for scheme in ["Bearer", "bearer", "BEARER", "bEARER"] {
        let good = desk.anonymous().with_header("Authorization", &format!("{scheme} {}", xiaoming.token()));
        good.get("/api/desk/x").await.expect_status(200);
        good.get("/api/auth/me").await.expect_code(0);
        good.post_json("/api/auth/switch-role", &json!({ "role": "user" })).await.expect_code(0);
        good.handshake("/ws/employee").expect_accepted().await;
        desk.anonymous()
            .with_header("Authorization", &format!("{scheme} a.b.c"))
            .get("/api/desk/x")
            .await
            .expect_invalid_token();
    }
}

#[tokio::test]
async fn decorated_authorization_values_are_refused() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let token = xiaoming.token();
    for (case, value) in [
        ("two spaces", format!("Bearer  {token}")),
        ("a tab", format!("Bearer \t{token}")),
        ("a trailing comma", format!("Bearer {token},")),
        ("quotes", format!("Bearer \"{token}\"")),
        ("a parameter", format!("Bearer {token};x=1")),
        ("a name", format!("Bearer token={token}")),
        ("two words", format!("Bearer {token} {token}x")),
    ] {
        let response = desk.anonymous().with_header("Authorization", &value).get("/api/desk/x").await;
        assert_eq!(response.status, 401, "{case}: {}", response.describe());
        response.expect_invalid_token();
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn two_authorization_tokens_are_1400() {
    let desk = Gateway::start().await;
    let (xiaoming, other) = (desk.sign_in("u1001").await, desk.sign_in("m5001").await);
    let (one, two) = (format!("Bearer {}", xiaoming.token()), format!("Bearer {}", other.token()));
    for (case, values) in [
        ("two fields", vec![one.as_str(), two.as_str()]),
        ("the same twice", vec![&one, &one]),
        ("a bad one behind", vec![&one, "Bearer a.b.c"]),
        ("another scheme behind", vec![&one, "Basic YTpi"]),
        ("an empty one behind", vec![&one, ""]),
        ("in one field", vec![&format!("{one}, {two}")]),
    ] {
        for path in ["/api/desk/x", "/api/auth/me", "/public/x"] {
            // In one field it is only a strange token to somebody who needs none.
            if path == "/public/x" && values.len() == 1 {
                continue;
            }
            let headers: Vec<(&str, &str)> = values.iter().map(|value| ("Authorization", *value)).collect();
            let response = desk.anonymous().send("GET", path, &headers, b"").await;
            assert_eq!(response.status, 400, "{case} {path}: {}", response.describe());
            let response = response.expect_code(1400);
            let challenge = response.header("www-authenticate").unwrap_or_default();
            assert!(challenge.contains(r#"error="invalid_request""#), "{case} {path}: {}", response.describe());
        }
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn authorization_header_wins_over_other_token_sources() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let (good, bad) = (xiaoming.token(), "a.b.c");
    for (case, header, protocol, query, accepted) in [
        ("a good header", Some(good), Some(bad), Some(bad), true),
        ("a bad header", Some(bad), Some(good), Some(good), false),
        ("a good subprotocol", None, Some(good), Some(bad), true),
        ("a bad subprotocol", None, Some(bad), Some(good), false),
        ("a good query", None, None, Some(good), true),
        ("a bad query", None, None, Some(bad), false),
    ] {
        let target = query.map_or("/ws/employee".to_owned(), |token| format!("/ws/employee?token={token}"));
        let mut handshake = desk.anonymous().handshake(&target);
        if let Some(token) = header {
            handshake = handshake.header("Authorization", &format!("Bearer {token}"));
        }
        if let Some(token) = protocol {
            handshake = handshake.protocols(&[&format!("bearer.{token}")]);
        }
        match handshake.open().await {
            Ok(mut socket) => {
                assert!(accepted, "{case} was accepted");
                socket.echo(case).await;
            }
            Err(response) => {
                assert!(!accepted, "{case} was refused: {}", response.describe());
                response.expect_invalid_token();
            }
        }
    }
}

#[tokio::test]
async fn other_authorization_schemes_get_the_bare_challenge() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    for value in [
        "Basic dTEwMDE6cGFzcw==".to_owned(),
        "Digest username=\"u1001\"".to_owned(),
        "Negotiate YWJj".to_owned(),
        format!("Token {}", xiaoming.token()),
        format!("Bearer{}", xiaoming.token()),
        format!("Bearerx {}", xiaoming.token()),
        xiaoming.token().to_owned(),
    ] {
        let response = desk.anonymous().with_header("Authorization", &value).get("/api/desk/x").await;
        response.expect_bare_challenge();
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn tokens_in_query_body_or_cookie_are_ignored() {
    let desk = Gateway::with("[websocket]\nquery_token = false").await;
    let xiaoming = desk.sign_in("u1001").await;
    let (anonymous, token) = (desk.anonymous(), xiaoming.token());
    anonymous.get(&format!("/api/desk/x?token={token}")).await.expect_bare_challenge();
    anonymous.get(&format!("/api/desk/x?access_token={token}")).await.expect_bare_challenge();
    anonymous.get(&format!("/api/auth/me?token={token}")).await.expect_bare_challenge();
    let form = format!("access_token={token}");
    anonymous
        .post_body("/api/desk/x", "application/x-www-form-urlencoded", form.as_bytes())
        .await
        .expect_bare_challenge();
    for name in ["token", "access_token", "Authorization", "deskgate"] {
        let cookie = format!("{name}={token}");
        anonymous.with_header("Cookie", &cookie).get("/api/desk/x").await.expect_bare_challenge();
    }
    // Only on a handshake does the subprotocol carry a token.
    let protocol = format!("bearer.{token}");
    anonymous.with_header("Sec-WebSocket-Protocol", &protocol).get("/api/desk/x").await.expect_bare_challenge();
    let response = anonymous.handshake(&format!("/ws/employee?token={token}")).expect_refused().await;
    response.expect_bare_challenge();
    assert!(desk.upstream.requests().is_empty());
}

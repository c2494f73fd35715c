//! Forged tokens: signature, header and encoding (attacks 1 to 9 and 18 to 21 of `docs/threats.md`).
//!
//! Every token is tried at a proxied path, at an endpoint of the gateway, at `/api/auth/verify` and as WebSocket
//! subprotocol. Unless the signature is the subject, tokens are signed with the gateway's own key, so that only the
//! tested property is wrong.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use tokio::net::TcpListener;

use crate::support::*;

fn hs256(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    format!("{message}.{}", base64url(hmac::sign(&key, message.as_bytes())))
}

#[tokio::test]
async fn token_forged_with_the_gateways_key_is_accepted() {
    let fixture = Fixture::new().await;
    let token = fixture.xiaoming.token();
    let parts: Vec<Vec<u8>> = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).expect("base64url")).collect();
    assert_eq!(fixture.key.token_of_text(&parts[0], &parts[1]), token, "the same bytes get the same signature");
}

#[tokio::test]
async fn unsigned_tokens_are_refused() {
    let fixture = Fixture::new().await;
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        let header = fixture.header_with("alg", json!(alg));
        let message = format!("{}.{}", base64url(header.to_string()), base64url(fixture.claims.to_string()));
        fixture.assert_refused(&format!("alg {alg}, empty signature"), &format!("{message}.")).await;
        fixture.assert_refused(&format!("alg {alg}, no signature"), &message).await;
        fixture.assert_refused(&format!("alg {alg}, valid signature"), &fixture.signed(&header, &fixture.claims)).await;
    }
    let (message, _) = fixture.xiaoming.token().rsplit_once('.').expect("a signature");
    fixture.assert_refused("signature removed, dot kept", &format!("{message}.")).await;
    fixture.assert_refused("signature removed with its dot", message).await;
    fixture.assert_refused("signature of zeros", &format!("{message}.{}", base64url([0; 64]))).await;
    fixture.assert_refused("half a signature", &format!("{message}.{}", base64url([1; 32]))).await;
    fixture.assert_session_live().await;
}

#[tokio::test]
async fn hmac_with_the_public_key_is_refused() {
    for algorithm in ["EdDSA", "ES256"] {
        let fixture = Fixture::with(&format!("[token]\nalgorithm = \"{algorithm}\"")).await;
        let raw = fixture.key.public_key();
        let prefix: &[u8] = match algorithm {
            "EdDSA" => &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00],
            _ => &[
                0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
                0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
            ],
        };
        let der = [prefix, &raw].concat();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(&der));
        let jwks = fixture.desk.anonymous().get("/.well-known/jwks.json").await.body;
        let header = fixture.header_with("alg", json!("HS256"));
        for (case, secret) in [
            ("raw", raw.as_slice()),
            ("DER", &der),
            ("PEM", pem.as_bytes()),
            ("PEM without its last line break", pem.trim_end().as_bytes()),
            ("the JWK set", &jwks),
        ] {
            let token = hs256(secret, &header, &fixture.claims);
            fixture.assert_refused(&format!("{algorithm} public key as HMAC secret, {case}"), &token).await;
        }
        fixture.assert_session_live().await;
    }
}

#[tokio::test]
async fn hmac_with_common_secrets_is_refused() {
    let fixture = Fixture::new().await;
    let header = fixture.header_with("alg", json!("HS256"));
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
        fixture
            .assert_refused(&format!("HS256 with `{secret}`"), &hs256(secret.as_bytes(), &header, &fixture.claims))
            .await;
    }
}

#[tokio::test]
async fn algorithm_must_match_the_key() {
    let fixture = Fixture::new().await;
    for alg in ["HS256", "HS384", "ES256", "ES384", "RS256", "PS256", "Ed25519", "EDDSA", "eddsa", "EdDSA "] {
        let header = fixture.header_with("alg", json!(alg));
        fixture.assert_refused(&format!("signed as EdDSA, alg {alg}"), &fixture.signed(&header, &fixture.claims)).await;
    }
    for alg in [json!(null), json!(1), json!(["EdDSA"]), json!({})] {
        let header = fixture.header_with("alg", alg.clone());
        fixture.assert_refused(&format!("alg {alg}"), &fixture.signed(&header, &fixture.claims)).await;
    }
    let mut without = fixture.header.clone();
    without.as_object_mut().expect("an object").remove("alg");
    fixture.assert_refused("no alg", &fixture.signed(&without, &fixture.claims)).await;
    let other = Signer::unknown_p256();
    let header = fixture.header_with("alg", json!("ES256"));
    fixture
        .assert_refused("ES256 by an unknown key under the gateway's kid", &other.token(&header, &fixture.claims))
        .await;
}

#[tokio::test]
async fn kid_is_only_looked_up() {
    let fixture = Fixture::new().await;
    let known = fixture.header["kid"].as_str().expect("a kid").to_owned();
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
        let header = fixture.header_with("kid", kid.clone());
        let case: String = format!("kid {kid}").chars().take(60).collect();
        fixture.assert_refused(&case, &fixture.signed(&header, &fixture.claims)).await;
        fixture.assert_refused(&case, &empty.token(&header, &fixture.claims)).await;
        let hmac_header = {
            let mut header = header.clone();
            header["alg"] = json!("HS256");
            header
        };
        fixture.assert_refused(&case, &hs256(b"", &hmac_header, &fixture.claims)).await;
    }
    let mut without = fixture.header.clone();
    without.as_object_mut().expect("an object").remove("kid");
    fixture.assert_refused("no kid", &fixture.signed(&without, &fixture.claims)).await;
    fixture.assert_session_live().await;
}

#[tokio::test]
async fn jku_and_x5u_are_never_fetched() {
    let fixture = Fixture::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}/keys.json", listener.local_addr().expect("an address"));
    let unknown = Signer::unknown_ed25519();
    for member in ["jku", "x5u"] {
        for kid in [fixture.header["kid"].clone(), json!("theirs")] {
            let mut header = fixture.header_with(member, json!(address));
            header["kid"] = kid;
            fixture.assert_refused(member, &unknown.token(&header, &fixture.claims)).await;
            fixture.assert_refused(member, &fixture.signed(&header, &fixture.claims)).await;
        }
    }
    let upstream_connection = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(upstream_connection.is_err(), "the key URL was fetched");
}

#[tokio::test]
async fn embedded_keys_are_not_used() {
    let fixture = Fixture::new().await;
    let unknown = Signer::unknown_ed25519();
    let jwk =
        json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(unknown.public_key()), "kid": fixture.header["kid"] });
    for (member, value) in [("jwk", jwk), ("x5c", json!([STANDARD.encode(unknown.public_key())]))] {
        let header = fixture.header_with(member, value);
        fixture.assert_refused(member, &unknown.token(&header, &fixture.claims)).await;
        fixture
            .assert_refused(
                &format!("{member}, signed by the gateway's key"),
                &fixture.signed(&header, &fixture.claims),
            )
            .await;
    }
    fixture
        .assert_refused("an unknown key under the gateway's kid", &unknown.token(&fixture.header, &fixture.claims))
        .await;
}

#[tokio::test]
async fn crit_headers_are_refused() {
    let fixture = Fixture::new().await;
    for crit in [json!(["exp"]), json!(["b64"]), json!([]), json!(["unheard-of"]), json!("exp"), json!(null)] {
        let mut header = fixture.header_with("crit", crit.clone());
        fixture.assert_refused(&format!("crit {crit}"), &fixture.signed(&header, &fixture.claims)).await;
        header["b64"] = json!(false);
        fixture.assert_refused(&format!("crit {crit} and b64"), &fixture.signed(&header, &fixture.claims)).await;
    }
}

#[tokio::test]
async fn non_canonical_base64_bits_are_refused() {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for algorithm in ["EdDSA", "ES256"] {
        let fixture = Fixture::with(&format!("[token]\nalgorithm = \"{algorithm}\"")).await;
        let token = fixture.xiaoming.token();
        let last = *token.as_bytes().last().expect("a character");
        let place = ALPHABET.iter().position(|letter| *letter == last).expect("base64url");
        // 64 bytes fill 85 characters and two bits of the last one; four bits are unused.
        for change in 1..16 {
            let letter = char::from(ALPHABET[place ^ change]);
            let changed = format!("{}{letter}", &token[..token.len() - 1]);
            fixture.assert_refused(&format!("{algorithm}, last character changed by {change}"), &changed).await;
        }
        fixture.assert_session_live().await;
    }
}

#[tokio::test]
async fn only_unpadded_base64url_is_accepted() {
    let fixture = Fixture::new().await;
    let token = fixture.xiaoming.token();
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
        fixture.assert_refused(case, &changed).await;
    }
    if signature.contains(['-', '_']) {
        let standard = signature.replace('-', "+").replace('_', "/");
        fixture.assert_refused("the other alphabet", &format!("{header}.{claims}.{standard}")).await;
    }
    fixture.assert_session_live().await;
}

#[tokio::test]
async fn token_must_have_three_segments() {
    let fixture = Fixture::new().await;
    let token = fixture.xiaoming.token();
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
        ("a leading dot", format!(".{token}")),
        ("JSON", json!({ "protected": header, "payload": claims, "signature": signature }).to_string()),
        ("twice", format!("{token}{token}")),
    ] {
        fixture.assert_refused(case, &changed).await;
    }
}

#[tokio::test]
async fn oversized_tokens_are_refused() {
    let fixture = Fixture::new().await;
    let large = fixture.signed(&fixture.header, &fixture.claims_with("name", json!("n".repeat(8192))));
    assert!(large.len() > 8192);
    let response = fixture.desk.with_token(&large).get("/api/desk/x").await;
    assert!(matches!(response.code(), 1001 | 1431), "{}", response.describe());
    fixture.assert_not_valid("8 KB and more", &large).await;

    let huge = "a".repeat(1_000_000);
    let request =
        format!("GET /api/desk/x HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {huge}\r\n\r\n", fixture.desk.address());
    if let Some(response) = fixture.desk.send_raw(request.as_bytes()).await {
        assert!(matches!(response.code(), 1001 | 1431), "{}", response.describe());
    }
    fixture.desk.anonymous().post_json("/api/auth/verify", &json!({ "token": huge })).await.expect_code(1413);
    assert!(fixture.desk.upstream.requests().is_empty());
    fixture.assert_session_live().await;
}

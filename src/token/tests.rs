use jwt_compact::alg::{Ed25519, Es256};
use jwt_compact::jwk::JsonWebKey;
use jwt_compact::{Algorithm, AlgorithmExt, UntrustedToken};

use super::cookie::{CookieKind, CookieSigner};
use super::key_folder::KeyFolder;
use super::ring::KeyFault;
use super::*;
use crate::config::TokenAlgorithm;
use crate::domain::employee::EmployeeId;
use crate::domain::role::RoleName;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
const GRACE: Duration = Duration::from_secs(8 * 3600);
const ISSUER: &str = "https://desk.example";

fn session() -> Session {
    Session {
        employee_id: EmployeeId::new("u1001"),
        name: "王小明".to_owned(),
        department: "Sales".to_owned(),
        roles: vec![RoleName::new("user")],
        current_role: RoleName::new("user"),
        issued_at: NOW,
        expires_at: NOW.plus(Duration::from_secs(600)),
        ..Session::sample()
    }
}

fn tokens(algorithm: TokenAlgorithm) -> (Tokens, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("folder");
    let keys = KeyFolder::new(folder.path()).open_ring(algorithm, GRACE, NOW).expect("keys");
    (Tokens::new(keys, ISSUER.to_owned(), Duration::from_secs(30)), folder)
}

/// Verifies a token as the session cache does for one that it does not have.
fn verify(tokens: &Tokens, token: &str, now: Timestamp) -> Result<Claims, TokenFault> {
    tokens.read(token, now)?.verify()
}

/// Verifies a token with a JOSE library that the gateway does not use and the published key, and nothing else.
fn verify_independently<A>(algorithm: A, tokens: &Tokens, token: &str) -> (Option<String>, serde_json::Value)
where
    A: Algorithm,
    for<'a> A::VerifyingKey: TryFrom<&'a JsonWebKey<'a>, Error: std::fmt::Debug>,
{
    let keys = tokens.keys();
    let published = serde_json::to_string(keys.jwks(NOW)[0]).expect("a JWK");
    let key: JsonWebKey<'_> = serde_json::from_str(&published).expect("a JWK");
    let key = A::VerifyingKey::try_from(&key).expect("a key of this algorithm");
    let untrusted = UntrustedToken::new(token).expect("a JWT");
    let verified = algorithm.validator::<serde_json::Value>(&key).validate(&untrusted).expect("a valid signature");
    (verified.header().token_type.clone(), verified.claims().custom.clone())
}

#[test]
fn an_independent_library_verifies_tokens_and_assertions() {
    for algorithm in [TokenAlgorithm::EdDSA, TokenAlgorithm::ES256] {
        let (tokens, _folder) = tokens(algorithm);
        for (token, audience, typ) in [
            (tokens.mint(&session(), NOW), "deskgate", "at+jwt"),
            (tokens.assert_identity(&session(), "helpdesk", None, NOW), "helpdesk", "deskgate-assertion+jwt"),
            (
                tokens.assert_request(&session(), "helpdesk", None, "GET", "/", NOW),
                "helpdesk",
                "deskgate-assertion+jwt",
            ),
        ] {
            let (token_type, claims) = match algorithm {
                TokenAlgorithm::EdDSA => verify_independently(Ed25519, &tokens, &token),
                TokenAlgorithm::ES256 => verify_independently(Es256, &tokens, &token),
            };
            assert_eq!(token_type.as_deref(), Some(typ));
            assert_eq!(claims["aud"], audience);
            assert_eq!(claims["iss"], ISSUER);
            assert_eq!(claims["sub"], "u1001");
            assert_eq!(claims["current_role"], "user");
        }
    }
}

#[test]
fn an_issued_token_verifies_and_matches_only_its_own_session() {
    let (tokens, _folder) = tokens(TokenAlgorithm::EdDSA);
    let claims = verify(&tokens, &tokens.mint(&session(), NOW), NOW).expect("good");
    assert!(claims.matches(&session()));
    let other = Session { employee_id: EmployeeId::new("u1002"), ..session() };
    assert!(!claims.matches(&other));
}

#[test]
fn an_assertion_is_refused_as_access_token() {
    let (tokens, _folder) = tokens(TokenAlgorithm::EdDSA);
    let assertion = tokens.assert_identity(&session(), "deskgate", None, NOW);
    assert_eq!(verify(&tokens, &assertion, NOW).err(), Some(TokenFault::Header));
}

/// Signs changed claims with the gateway's own key, so that only the claims can be at fault.
fn sign_changed(tokens: &Tokens, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut claims = serde_json::to_value(Claims::of(&session(), ISSUER)).expect("json");
    change(&mut claims);
    tokens.keys().active(NOW).sign(Purpose::Access, &claims)
}

#[test]
fn claims_of_a_wrong_form_are_refused_despite_a_valid_signature() {
    use serde_json::json;
    let (tokens, _folder) = tokens(TokenAlgorithm::EdDSA);
    let table: &[(&str, &str, serde_json::Value, TokenFault)] = &[
        ("exp as text", "exp", json!("1800000600"), TokenFault::Claims),
        ("exp as float", "exp", json!(1.8e9), TokenFault::Claims),
        ("exp null", "exp", json!(null), TokenFault::Claims),
        ("exp past the leeway", "exp", json!(NOW.seconds() - 31), TokenFault::Expired),
        ("exp negative", "exp", json!(-1), TokenFault::Expired),
        ("nbf as list", "nbf", json!([1]), TokenFault::Claims),
        ("nbf in the future", "nbf", json!(NOW.seconds() + 31), TokenFault::Expired),
        ("iat tomorrow", "iat", json!(NOW.seconds() + 86_400), TokenFault::Expired),
        ("another issuer", "iss", json!("https://evil.example"), TokenFault::Audience),
        ("another audience", "aud", json!("other"), TokenFault::Audience),
        ("a list of audiences", "aud", json!(["deskgate", "other"]), TokenFault::Claims),
        ("roles as text", "roles", json!("admin"), TokenFault::Claims),
        ("roles twice", "roles", json!(["user", "user"]), TokenFault::Claims),
        ("a role not held", "current_role", json!("admin"), TokenFault::Claims),
        ("a role in other case", "current_role", json!("User"), TokenFault::Claims),
        ("a malformed employee id", "sub", json!("u\u{202e}1"), TokenFault::Claims),
        ("a NUL in the employee id", "sub", json!("u1001\u{0}"), TokenFault::Claims),
        ("an unknown member", "admin", json!(true), TokenFault::Claims),
        ("an unknown stage", "stage", json!("root"), TokenFault::Claims),
    ];
    for (case, member, value, expected) in table {
        let token = sign_changed(&tokens, |claims| claims[*member] = value.clone());
        assert_eq!(verify(&tokens, &token, NOW).err(), Some(*expected), "{case}");
    }
    for member in ["exp", "iss", "aud", "sub", "jti", "stage", "iat", "nbf"] {
        let token = sign_changed(&tokens, |claims| {
            claims.as_object_mut().expect("object").remove(member);
        });
        assert_eq!(verify(&tokens, &token, NOW).err(), Some(TokenFault::Claims), "{member} missing");
    }
}

#[test]
fn a_token_with_a_changed_segment_is_refused() {
    let (tokens, _folder) = tokens(TokenAlgorithm::EdDSA);
    let good = tokens.mint(&session(), NOW);
    let (signed, signature) = good.rsplit_once('.').expect("three parts");
    let (header, payload) = signed.split_once('.').expect("two parts");
    let other_letter = if signature.starts_with('A') { "B" } else { "A" };
    let table = [
        ("signature removed", format!("{signed}.")),
        ("no last dot", signed.to_owned()),
        ("four parts", format!("{good}.x")),
        ("five parts", format!("{good}.x.y")),
        ("padding", format!("{good}=")),
        ("space inside", format!("{header}. {payload}.{signature}")),
        ("signature changed", format!("{signed}.{other_letter}{}", &signature[1..])),
        ("payload of another employee", format!("{header}.{}.{signature}", encode_for_another_employee(payload))),
        ("too long", format!("{good}{}", "A".repeat(MAX_TOKEN_BYTES))),
        ("empty", String::new()),
        ("dots", "..".to_owned()),
    ];
    for (case, token) in table {
        assert!(verify(&tokens, &token, NOW).is_err(), "{case}");
    }
    assert!(verify(&tokens, &good, NOW).is_ok());
}

fn encode_for_another_employee(payload: &str) -> String {
    let json = String::from_utf8(URL_SAFE_NO_PAD.decode(payload).expect("base64")).expect("text");
    URL_SAFE_NO_PAD.encode(json.replace("u1001", "m5001"))
}

#[test]
fn non_canonical_base64_of_the_signature_is_refused() {
    let (tokens, _folder) = tokens(TokenAlgorithm::EdDSA);
    let good = tokens.mint(&session(), NOW);
    let last = good.chars().last().expect("a letter");
    let mut accepted = 0;
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".chars() {
        let other = format!("{}{letter}", &good[..good.len() - 1]);
        accepted += usize::from(verify(&tokens, &other, NOW).is_ok());
        assert_eq!(verify(&tokens, &other, NOW).is_ok(), letter == last);
    }
    assert_eq!(accepted, 1);
}

#[test]
fn headers_other_than_the_issued_one_are_refused() {
    let (tokens, _folder) = tokens(TokenAlgorithm::EdDSA);
    let good = tokens.mint(&session(), NOW);
    let (_, rest) = good.split_once('.').expect("parts");
    let kid = tokens.keys().active(NOW).id().to_owned();
    let table = [
        ("alg none", format!(r#"{{"typ":"at+jwt","alg":"none","kid":"{kid}"}}"#), TokenFault::Header),
        ("alg HS256", format!(r#"{{"typ":"at+jwt","alg":"HS256","kid":"{kid}"}}"#), TokenFault::Header),
        ("crit", format!(r#"{{"typ":"at+jwt","alg":"EdDSA","kid":"{kid}","crit":["exp"]}}"#), TokenFault::Header),
        (
            "jku",
            format!(r#"{{"typ":"at+jwt","alg":"EdDSA","kid":"{kid}","jku":"http://127.0.0.1"}}"#),
            TokenFault::Header,
        ),
        ("another type", format!(r#"{{"typ":"JWT","alg":"EdDSA","kid":"{kid}"}}"#), TokenFault::Header),
        ("kid as path", r#"{"typ":"at+jwt","alg":"EdDSA","kid":"../../dev/null"}"#.to_owned(), TokenFault::UnknownKey),
        ("kid as number", r#"{"typ":"at+jwt","alg":"EdDSA","kid":1}"#.to_owned(), TokenFault::Header),
    ];
    for (case, header, expected) in table {
        let token = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header));
        assert_eq!(verify(&tokens, &token, NOW).err(), Some(expected), "{case}");
    }
}

#[test]
fn tokens_stay_valid_over_a_restart_and_a_change_of_algorithm() {
    let folder = tempfile::tempdir().expect("folder");
    let open = |algorithm| {
        let keys = KeyFolder::new(folder.path()).open_ring(algorithm, GRACE, NOW).expect("keys");
        Tokens::new(keys, ISSUER.to_owned(), Duration::from_secs(30))
    };
    let before = open(TokenAlgorithm::EdDSA).mint(&session(), NOW);
    assert!(verify(&open(TokenAlgorithm::EdDSA), &before, NOW).is_ok());
    let both = open(TokenAlgorithm::ES256);
    assert!(verify(&both, &before, NOW).is_ok());
    assert!(verify(&both, &both.mint(&session(), NOW), NOW).is_ok());
    assert_eq!(both.keys().jwks(NOW).len(), 2);
}

#[test]
fn a_damaged_key_file_is_an_error_and_is_not_replaced() {
    let folder = tempfile::tempdir().expect("folder");
    KeyFolder::new(folder.path()).open_ring(TokenAlgorithm::EdDSA, GRACE, NOW).expect("keys");
    let file = std::fs::read_dir(folder.path()).expect("folder").next().expect("a file").expect("entry").path();
    std::fs::write(&file, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").expect("write");
    assert!(matches!(
        KeyFolder::new(folder.path()).open_ring(TokenAlgorithm::EdDSA, GRACE, NOW),
        Err(KeyFault::NotAKey(_))
    ));
}

#[test]
fn a_token_of_an_unknown_key_is_not_called_invalid_while_keys_cannot_be_read() {
    let (tokens, _folder) = tokens(TokenAlgorithm::EdDSA);
    let is_invalid = |fault| matches!(tokens.refusal(fault), Error::InvalidToken(_));
    assert!(is_invalid(TokenFault::UnknownKey));
    tokens.note_key_access(KeyAccess::Lost);
    assert!(matches!(tokens.refusal(TokenFault::UnknownKey), Error::Unavailable { part: Part::Directory, .. }));
    assert!(is_invalid(TokenFault::Signature) && is_invalid(TokenFault::Expired), "these do not depend on other keys");
    tokens.note_key_access(KeyAccess::Current);
    assert!(is_invalid(TokenFault::UnknownKey));
}

#[test]
fn a_signed_cookie_verifies_only_for_its_kind_and_until_it_expires() {
    let cookies = CookieSigner::new(&[1; 32], &[]);
    let lifetime = Duration::from_secs(10);
    let end = NOW.plus(lifetime);
    let text = cookies.sign(CookieKind::Flow, end, &"/h5/");
    let verify = |kind, text: &str, now| cookies.verify::<String>(kind, text, lifetime, now);
    assert_eq!(verify(CookieKind::Flow, &text, NOW).as_deref(), Some("/h5/"));
    assert_eq!(verify(CookieKind::BindProof, &text, NOW), None, "another kind");
    assert_eq!(verify(CookieKind::Flow, &text, end), None, "expired");
    assert_eq!(verify(CookieKind::Flow, &text, NOW.minus(Duration::from_secs(3600))), None, "from the future");
    assert!(verify(CookieKind::Flow, &text, NOW.minus(Duration::from_secs(5))).is_some(), "a clock that is corrected");
    let (body, tag) = text.split_once('.').expect("two parts");
    assert_eq!(verify(CookieKind::Flow, &format!("{body}A.{tag}"), NOW), None, "changed");
    for (case, current, previous, accepted) in [
        ("after a restart", [1; 32], vec![], true),
        ("the key beside a new one", [2; 32], vec![[3; 32], [1; 32]], true),
        ("another key", [2; 32], vec![[3; 32]], false),
    ] {
        let other = CookieSigner::new(&current, &previous);
        let verified = other.verify::<String>(CookieKind::Flow, &text, lifetime, NOW);
        assert_eq!(verified.is_some(), accepted, "{case}");
    }
}

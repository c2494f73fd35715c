//! Lifetime and revocation of application tokens.

use super::*;

#[tokio::test]
async fn token_lifetime_sets_the_expiry() {
    let (simulator, clock) = simulator().await;
    simulator.switches(|switches| switches.token_lifetime = Duration::from_secs(60));
    let answer = call(&simulator, path::TOKEN, &[("corpid", CORP_ID), ("corpsecret", SECRET)]).await;
    assert_eq!(answer["expires_in"], 60);
    let query = [("access_token", answer["access_token"].as_str().unwrap()), ("id", "2")];
    assert_eq!(errcode(&simulator, path::DEPARTMENT, &query).await, 0);
    clock.advance(Duration::from_secs(60));
    assert_eq!(errcode(&simulator, path::DEPARTMENT, &query).await, 42001);
}

#[tokio::test]
async fn rotate_tokens_revokes_the_previous_token() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.rotate_tokens = true);
    let (first, second) = (token_of(&simulator, SECRET).await, token_of(&simulator, SECRET).await);
    assert_ne!(first, second);
    let others = token_of(&simulator, APPLICATIONS[1].secret).await;
    for (case, token, expected) in [("the old", first, 40014), ("the new", second, 0), ("another's", others, 0)] {
        let query = [("access_token", token.as_str()), ("id", "2")];
        assert_eq!(errcode(&simulator, path::DEPARTMENT, &query).await, expected, "{case}");
    }
}

#[tokio::test]
async fn stale_token_errcode_sets_the_error_of_stale_tokens() {
    let (simulator, clock) = simulator().await;
    let revoked = token_of(&simulator, SECRET).await;
    simulator.revoke_tokens();
    let expired = token_of(&simulator, SECRET).await;
    clock.advance(Duration::from_secs(7200));
    let table = [
        (None, 42001, 40014),
        (Some(StaleErrcode::Invalid), 40014, 40014),
        (Some(StaleErrcode::Expired), 42001, 42001),
    ];
    for (set, of_expired, of_revoked) in table {
        simulator.switches(|switches| switches.stale_token_errcode = set);
        for (token, expected) in [(&*expired, of_expired), (&*revoked, of_revoked), ("unknown", 40014)] {
            let query = [("access_token", token), ("id", "2")];
            assert_eq!(errcode(&simulator, path::DEPARTMENT, &query).await, expected, "{set:?}");
        }
    }
}

#[tokio::test]
async fn the_platform_lists_its_addresses() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    for path in [path::CALLBACK_ADDRESSES, path::API_ADDRESSES] {
        assert_eq!(call(&simulator, path, &[("access_token", &token)]).await["ip_list"], json!(["127.0.0.1"]));
        assert_eq!(errcode(&simulator, path, &[]).await, 41001);
    }
}

#[tokio::test]
async fn a_response_repeats_its_errcode_in_a_header() {
    let (simulator, _) = simulator().await;
    let seen = open(simulator.api_url().join(path::USER).unwrap()).await;
    assert_eq!(seen.headers["error-code"], "41001");
    assert_eq!(seen.headers[header::CONTENT_TYPE], "application/json; charset=UTF-8");
    assert!(seen.headers["error-msg"].to_str().unwrap().starts_with("access_token missing, hint: ["));
}

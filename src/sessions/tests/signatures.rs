//! Tokens with a signature that is not the cached one, and when a cached token is verified again.

use super::*;
use crate::config::TokenAlgorithm;
use crate::token::key_folder::KeyFolder;

/// The token with another first letter in its signature, which makes the signature invalid.
fn with_other_signature(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').expect("a JWT");
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{signed}.{first}{}", &signature[1..])
}

/// A cache, keys of this algorithm, and a session that is in the store.
async fn cache_and_keys(algorithm: TokenAlgorithm) -> (Arc<SessionCache>, Tokens, Session, Clock, tempfile::TempDir) {
    let (cache, clock, folder) = cache(100).await;
    let keys = KeyFolder::new(folder.path().join("keys")).open_ring(algorithm, Duration::from_secs(60), clock.now());
    let tokens = Tokens::new(keys.expect("keys"), "https://desk.example".to_owned(), LEEWAY);
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    (cache, tokens, session, clock, folder)
}

#[tokio::test]
async fn a_cached_token_with_another_signature_is_refused_unchecked() {
    let (cache, tokens, session, clock, _folder) = cache_and_keys(TokenAlgorithm::EdDSA).await;
    let (token, now) = (tokens.mint(&session, clock.now()), clock.now());
    let forged = with_other_signature(&token);
    let is_known = |token: &str| {
        let (signed, _) = token.rsplit_once('.').expect("a JWT");
        cache.differs_in_signature(&session.id, signed, token)
    };
    assert!(!is_known(&forged), "nothing is cached yet");
    cache.of_token(&tokens, &token, now).await.expect("valid");
    assert!(is_known(&forged));
    assert!(!is_known(&token));
    for _ in 0..2 {
        let refused = cache.verify(&tokens, &forged, now);
        assert_eq!(refused.err(), Some(TokenFault::Signature));
    }
    assert!(cache.verify(&tokens, &token, now).is_ok());
    cache.end(&session.id, EndCause::Logout).await.expect("end");
    assert!(!is_known(&forged), "the session has ended");
}

#[tokio::test]
async fn a_session_that_was_changed_has_a_second_token() {
    let (cache, tokens, session, clock, _folder) = cache_and_keys(TokenAlgorithm::EdDSA).await;
    let changed = Session { name: "Alice Wang".to_owned(), ..session.clone() };
    for session in [&session, &changed] {
        let token = tokens.mint(session, clock.now());
        cache.of_token(&tokens, &token, clock.now()).await.expect("valid");
        assert!(cache.cached(&token, clock.now()).is_some());
        let forged = with_other_signature(&token);
        assert_eq!(cache.verify(&tokens, &forged, clock.now()).err(), Some(TokenFault::Signature));
    }
}

#[tokio::test]
async fn every_signature_of_an_es256_key_is_checked() {
    let (cache, tokens, session, clock, _folder) = cache_and_keys(TokenAlgorithm::ES256).await;
    let issue = || tokens.mint(&session, clock.now());
    let (first, second) = (issue(), issue());
    assert_ne!(first, second, "ECDSA signs at random");
    for token in [&first, &second] {
        cache.of_token(&tokens, token, clock.now()).await.expect("valid");
    }
    let forged = with_other_signature(&first);
    assert_eq!(cache.verify(&tokens, &forged, clock.now()).err(), Some(TokenFault::Signature));
}

#[tokio::test]
async fn a_known_token_is_verified_again_while_the_feed_is_stale() {
    let (cache, store, clock, folder) = shared_cache().await;
    let keys = KeyFolder::new(folder.path().join("keys"));
    let keys = keys.open_ring(TokenAlgorithm::EdDSA, Duration::from_secs(60), clock.now()).expect("keys");
    let tokens = Tokens::new(keys, "https://desk.example".to_owned(), LEEWAY);
    let session = session("s1", &clock);
    cache.create(&session).await.expect("create");
    let token = tokens.mint(&session, clock.now());
    cache.of_token(&tokens, &token, clock.now()).await.expect("valid");
    clock.advance(Duration::from_secs(2));
    assert_eq!(store.feed().trust(), FeedTrust::Stale);
    assert!(cache.cached(&token, clock.now()).is_none());
    cache.of_token(&tokens, &token, clock.now()).await.expect("still valid");
    let forged = cache.of_token(&tokens, &with_other_signature(&token), clock.now()).await;
    assert!(matches!(forged, Err(Error::InvalidToken(TokenFault::Signature))));
}

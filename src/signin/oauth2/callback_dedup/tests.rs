use super::*;
use crate::domain::clock::Clock;
use crate::error::Forbidden;
use crate::signin::oauth2::callback::CallbackResult;
use crate::signin::oauth2::stored_result::StoredRefusal;
use crate::store::in_memory_claims::InMemoryClaims;

const PARTS: [&str; 3] = ["code", "auth_login", "flow"];

/// Two gateways on one store.
fn gateways() -> (CallbackDedup, CallbackDedup, Arc<InMemoryClaims>) {
    let claims = Arc::new(InMemoryClaims::new(Clock::system()));
    let gateway = || CallbackDedup {
        claims: claims.clone(),
        vault: Arc::new(Vault::new(&[7; 32], &[])),
        flow_lifetime: Duration::from_secs(600),
    };
    (gateway(), gateway(), claims)
}

fn network() -> Network {
    Network::of([192, 0, 2, 1].into())
}

async fn first(gateway: &CallbackDedup) -> PendingCallback {
    match gateway.begin(&PARTS, network()).await {
        Ok(CallbackTurn::First(pending)) => pending,
        _ => panic!("not the first"),
    }
}

fn refusal() -> StoredResult {
    StoredResult::Failed { to: Some("/h5/".to_owned()), refusal: StoredRefusal::Forbidden(Forbidden::Disabled) }
}

fn is_refusal(turn: &Result<CallbackTurn, Error>) -> bool {
    let Ok(CallbackTurn::Repeated(StoredResult::Failed { to, refusal })) = turn else { return false };
    to.as_deref() == Some("/h5/") && matches!(refusal, StoredRefusal::Forbidden(Forbidden::Disabled))
}

#[tokio::test]
async fn repeated_callback_waits_for_the_result_of_the_first_on_another_gateway() {
    let (one, two, _) = gateways();
    let (pending, result) = (first(&one).await, refusal());
    let (repeated, ()) = tokio::join!(two.begin(&PARTS, network()), pending.settle(&result));
    assert!(is_refusal(&repeated));
    assert!(is_refusal(&two.begin(&PARTS, network()).await), "later as well");
    assert!(matches!(two.begin(&["another code"], network()).await, Ok(CallbackTurn::First(_))));
}

#[tokio::test]
async fn released_or_abandoned_callback_is_tried_again() {
    let (one, two, _) = gateways();
    first(&one).await.release().await;
    drop(first(&two).await);
    first(&one).await;
}

#[tokio::test(start_paused = true)]
async fn callback_without_a_result_is_refused_in_time() {
    let (one, two, _) = gateways();
    let _pending = first(&one).await;
    let began = tokio::time::Instant::now();
    assert!(matches!(two.begin(&PARTS, network()).await, Err(Error::Unavailable { part: Part::Gateway, .. })));
    assert!(began.elapsed() < Duration::from_secs(21));
}

#[tokio::test]
async fn result_is_encrypted_and_holds_no_token() {
    let (one, two, claims) = gateways();
    let signed_in = CallbackResult::SignedIn {
        to: "/h5/".to_owned(),
        session: crate::domain::session::SessionId::new("the session"),
        token: crate::domain::secret::Secret::new("the token".to_owned()),
        expires_in: 60,
        flow: None,
    };
    let stored = StoredResult::of(&signed_in).expect("a result");
    assert!(!serde_json::to_string(&stored).expect("text").contains("the token"));
    first(&one).await.settle(&stored).await;
    let key = ClaimKey { kind: ClaimKind::Callback, digest: Digest::of(&PARTS), network: network() };
    let value = claims.claimed(&key).await.expect("memory").expect("a result");
    assert!(value.starts_with("v1.") && !value.contains("session"), "{value}");
    let other_key = CallbackDedup { vault: Arc::new(Vault::new(&[8; 32], &[])), ..two };
    assert!(matches!(other_key.begin(&PARTS, network()).await, Err(Error::Unexpected { part: Part::Store, .. })));
}

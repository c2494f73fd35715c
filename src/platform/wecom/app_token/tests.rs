use super::*;

async fn fresh(name: &str, lifetime: u64) -> Result<FreshToken, PlatformError> {
    Ok(FreshToken { token: Secret::new(name.to_owned()), lifetime: Duration::from_secs(lifetime) })
}

async fn failing() -> Result<FreshToken, PlatformError> {
    Err(PlatformError::Unavailable("down".to_owned()))
}

async fn unexpected_fetch() -> Result<FreshToken, PlatformError> {
    panic!("unexpected fetch")
}

fn name(token: &AppToken) -> &str {
    token.reveal()
}

#[tokio::test]
async fn a_token_that_cannot_be_replaced_is_used_until_it_expires() {
    let clock = Clock::system();
    let tokens = AppTokens::new(clock.clone());
    assert!(tokens.current(failing).await.is_err(), "none yet");
    assert_eq!(name(&tokens.current(|| fresh("first", 7200)).await.unwrap()), "first");
    clock.advance(Duration::from_secs(7100));
    assert_eq!(name(&tokens.current(failing).await.unwrap()), "first");
    assert_eq!(name(&tokens.current(unexpected_fetch).await.unwrap()), "first", "not fetched again at once");
    clock.advance(RETRY_PAUSE);
    assert_eq!(name(&tokens.current(|| fresh("second", 7200)).await.unwrap()), "second");
    clock.advance(Duration::from_secs(7200));
    assert!(tokens.current(failing).await.is_err(), "an expired token is not used");
}

#[tokio::test]
async fn a_short_lifetime_does_not_fetch_for_every_call() {
    let clock = Clock::system();
    let tokens = AppTokens::new(clock.clone());
    assert_eq!(name(&tokens.current(|| fresh("first", 100)).await.unwrap()), "first");
    clock.advance(Duration::from_secs(40));
    assert_eq!(name(&tokens.current(unexpected_fetch).await.unwrap()), "first");
    clock.advance(Duration::from_secs(10));
    assert_eq!(name(&tokens.current(|| fresh("second", 100)).await.unwrap()), "second");
}

#[tokio::test]
async fn only_the_rejected_token_is_dropped() {
    let tokens = AppTokens::new(Clock::system());
    let first = tokens.current(|| fresh("first", 7200)).await.unwrap();
    tokens.invalidate(&first);
    let second = tokens.current(|| fresh("second", 7200)).await.unwrap();
    tokens.invalidate(&first);
    assert_eq!(name(&tokens.current(unexpected_fetch).await.unwrap()), name(&second));
}

#[tokio::test]
async fn a_token_is_kept_for_its_own_lifetime_whatever_the_wall_clock_does() {
    let clock = Clock::system();
    let tokens = AppTokens::new(clock.clone());
    tokens.current(|| fresh("first", 7200)).await.unwrap();
    clock.set_forward(Duration::from_secs(24 * 3600));
    assert_eq!(name(&tokens.current(unexpected_fetch).await.unwrap()), "first");
    clock.set_back(Duration::from_secs(48 * 3600));
    assert_eq!(name(&tokens.current(unexpected_fetch).await.unwrap()), "first");
    clock.advance(Duration::from_secs(7200));
    assert_eq!(name(&tokens.current(|| fresh("second", u64::MAX)).await.unwrap()), "second");
    assert_eq!(name(&tokens.current(unexpected_fetch).await.unwrap()), "second", "an endless lifetime");
}

#[tokio::test]
async fn an_expired_token_has_an_age_only_if_it_could_not_be_replaced() {
    let clock = Clock::system();
    let tokens = AppTokens::new(clock.clone());
    let minutes = || tokens.age().map(|age| age.as_secs() / 60);
    assert_eq!(minutes(), None, "none yet");
    tokens.current(|| fresh("first", 7200)).await.unwrap();
    clock.advance(Duration::from_secs(7100));
    assert_eq!(minutes(), Some(118));
    tokens.current(failing).await.unwrap();
    clock.advance(Duration::from_secs(1000));
    assert_eq!(minutes(), None, "no call has needed it since it expired");
    assert!(tokens.current(failing).await.is_err());
    assert_eq!(minutes(), Some(135));
    clock.advance(Duration::from_secs(600));
    assert_eq!(minutes(), Some(145), "the age grows until a fetch succeeds");
    tokens.current(|| fresh("second", 7200)).await.unwrap();
    assert_eq!(minutes(), Some(0));
}

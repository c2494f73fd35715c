use super::*;
use crate::domain::session::Session;
use crate::token::fingerprint::Fingerprinter;

/// A session that this token leads to.
fn session_of(token: TokenFingerprint) -> Arc<CachedSession> {
    let session = Arc::new(CachedSession::new(Session::sample()));
    session.set_token(token);
    session
}

/// Whether a token leads to this session.
fn leads_to(recent: &RecentTokens, token: &TokenFingerprint, session: &Arc<CachedSession>) -> bool {
    recent.get(token).is_some_and(|found| Arc::ptr_eq(&found, session))
}

#[test]
fn token_leads_to_its_session_until_it_is_removed_or_the_session_is_outdated() {
    let (recent, fingerprinter) = (RecentTokens::new(100), Fingerprinter::new());
    let token = fingerprinter.fingerprint("token-1").expect("a fingerprint");
    let (first, second) = (session_of(token), session_of(token));
    assert!(recent.get(&token).is_none());
    recent.insert(&token, &first);
    assert!(leads_to(&recent, &token, &first));
    first.set_outdated();
    assert!(recent.get(&token).is_none());
    recent.insert(&token, &second);
    assert!(leads_to(&recent, &token, &second));
    recent.remove(&token, &first);
    assert!(leads_to(&recent, &token, &second), "another version");
    recent.remove(&token, &second);
    assert!(recent.get(&token).is_none());
    assert_eq!(Arc::strong_count(&second), 1, "the session is freed");
}

#[test]
fn token_is_never_taken_for_another_one_in_its_place() {
    let (recent, fingerprinter) = (RecentTokens::new(1), Fingerprinter::new());
    assert_eq!(recent.places.len(), 2);
    let tokens: Vec<TokenFingerprint> =
        (0..100).map(|number| fingerprinter.fingerprint(format!("token-{number}")).expect("a fingerprint")).collect();
    for token in &tokens {
        let own = session_of(*token);
        recent.insert(token, &own);
        for other in &tokens {
            assert_eq!(leads_to(&recent, other, &own), other == token);
        }
    }
}

#[test]
fn further_token_of_a_session_does_not_take_a_place() {
    let (recent, fingerprinter) = (RecentTokens::new(1), Fingerprinter::new());
    let [first, further] = ["first", "further"].map(|text| fingerprinter.fingerprint(text).expect("a fingerprint"));
    let session = session_of(first);
    session.set_token(further);
    recent.insert(&further, &session);
    assert!(recent.get(&further).is_none());
    assert_eq!(Arc::strong_count(&session), 1);
}

/// Two tokens may agree in the hint, and a lookup may come between the writes of the session and of the hint.
#[test]
fn hint_alone_leads_to_no_session() {
    let (recent, fingerprinter) = (RecentTokens::new(100), Fingerprinter::new());
    let [own, other] = ["own", "other"].map(|text| fingerprinter.fingerprint(text).expect("a fingerprint"));
    let place = recent.place(&own).expect("a place");
    place.hint.store(own.bits(), Ordering::Relaxed);
    place.session.store(Some(session_of(other)));
    assert!(recent.get(&own).is_none());
    place.session.store(Some(session_of(own)));
    assert!(recent.get(&own).is_some());
}

use std::sync::atomic::AtomicUsize;

use super::*;

const UP: BackendState = BackendState { store: true, directory: true };

#[tokio::test]
async fn a_flood_of_requests_asks_the_backends_once_a_second() {
    let clock = Clock::system();
    let readiness = Readiness::new(Development::Off, clock.clone());
    let checks = AtomicUsize::new(0);
    let check = || async {
        checks.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        UP
    };
    let states = futures::future::join_all((0..1000).map(|_| readiness.state(check()))).await;
    assert!(states.iter().all(|state| *state == UP));
    assert_eq!(checks.load(Ordering::Relaxed), 1, "concurrent requests share one check");

    clock.advance(STATE_LIFETIME);
    readiness.state(check()).await;
    assert_eq!(checks.load(Ordering::Relaxed), 2, "the state is not older than a second");
}

use futures::FutureExt;

use super::*;

fn limit() -> ConcurrencyLimit {
    ConcurrencyLimit::new(1)
}

/// Begins as many requests as one thread always carries.
async fn fill(limit: &ConcurrencyLimit) -> Vec<ConcurrencySlot<'_>> {
    let mut slots = Vec::new();
    for _ in 0..PER_THREAD {
        slots.push(limit.begin(|| Urgency::Normal).await.expect("room"));
    }
    slots
}

#[tokio::test(start_paused = true)]
async fn request_waits_until_one_before_it_has_ended() {
    let limit = limit();
    let mut slots = fill(&limit).await;
    let mut first = Box::pin(limit.begin(|| Urgency::Normal));
    let mut second = Box::pin(limit.begin(|| Urgency::Normal));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    slots.pop();
    assert!(second.as_mut().now_or_never().is_none(), "the first one is next");
    let first = first.as_mut().now_or_never().expect("its turn").expect("room");
    assert!(second.as_mut().now_or_never().is_none());
    drop(first);
    second.as_mut().now_or_never().expect("its turn").expect("room");
}

#[tokio::test(start_paused = true)]
async fn request_that_is_no_longer_young_makes_room() {
    let limit = limit();
    let slots = fill(&limit).await;
    tokio::time::advance(PERIOD * YOUNG_PERIODS as u32).await;
    let later = fill(&limit).await;
    assert_eq!(limit.young(limit.current_period()), PER_THREAD);
    drop(slots);
    assert_eq!(limit.young(limit.current_period()), PER_THREAD, "the old ones were not counted any more");
    drop(later);
    assert_eq!(limit.young(limit.current_period()), 0);
}

#[tokio::test(start_paused = true)]
async fn limit_grows_while_requests_wait_for_an_idle_core_and_falls_when_it_is_saturated() {
    let limit = limit();
    let _slots = fill(&limit).await;
    let mut waiting = Box::pin(limit.begin(|| Urgency::Normal));
    assert!(waiting.as_mut().now_or_never().is_none());
    limit.adjust(true);
    assert!(waiting.as_mut().now_or_never().is_none(), "the core has no time for it");
    limit.adjust(false);
    let _slot = waiting.as_mut().now_or_never().expect("its turn").expect("room");
    assert_eq!(limit.limit.load(Ordering::Relaxed), 2 * PER_THREAD);
    limit.adjust(false);
    assert_eq!(limit.limit.load(Ordering::Relaxed), 2 * PER_THREAD, "nobody waits");
    for _ in 0..20 {
        limit.adjust(true);
    }
    assert_eq!(limit.limit.load(Ordering::Relaxed), PER_THREAD);
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_too_long_is_refused() {
    let limit = limit();
    let _slots = fill(&limit).await;
    assert_eq!(limit.begin(|| Urgency::Normal).await.map(drop), Err(Saturated));
    assert_eq!(limit.waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn request_that_is_cancelled_while_it_waits_leaves_its_turn_to_the_next() {
    let limit = limit();
    let mut slots = fill(&limit).await;
    let mut first = Box::pin(limit.begin(|| Urgency::Normal));
    assert!(first.as_mut().now_or_never().is_none());
    drop(first);
    let mut second = Box::pin(limit.begin(|| Urgency::Normal));
    assert!(second.as_mut().now_or_never().is_none());
    slots.pop();
    second.as_mut().now_or_never().expect("its turn").expect("room");
}

#[tokio::test(start_paused = true)]
async fn request_begins_early_only_behind_others_that_wait() {
    let limit = limit();
    let mut slots = fill(&limit).await;
    assert!(limit.begin_if_others_wait().await.is_none(), "nobody waits");
    let mut first = Box::pin(limit.begin(|| Urgency::Normal));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(limit.begin_if_others_wait());
    assert!(second.as_mut().now_or_never().is_none());
    slots.truncate(PER_THREAD - 1);
    assert!(second.as_mut().now_or_never().is_none(), "the first one is next");
    let _first = first.as_mut().now_or_never().expect("its turn").expect("room");
    slots.pop();
    assert!(second.as_mut().now_or_never().expect("its turn").is_some());
}

#[tokio::test(start_paused = true)]
async fn urgent_request_does_not_wait_unless_there_are_too_many() {
    let limit = limit();
    let _slots = fill(&limit).await;
    let mut waiting = Box::pin(limit.begin(|| Urgency::Normal));
    assert!(waiting.as_mut().now_or_never().is_none());
    let begin_urgent = || limit.begin(|| Urgency::Urgent).now_or_never().map(|begun| begun.expect("room"));
    let mut urgent: Vec<_> = std::iter::from_fn(begin_urgent).take(PER_THREAD).collect();
    assert_eq!(urgent.len(), PER_THREAD / URGENT_SHARE);
    assert!(waiting.as_mut().now_or_never().is_none(), "the others wait on");
    urgent.pop();
    assert!(begin_urgent().is_some(), "one that has ended makes room");
    drop(urgent);
    assert_eq!(limit.urgent.load(Ordering::Relaxed), 0);
}

#[test]
fn readiness_and_sign_in_are_urgent() {
    for path in ["/api/ready", "/api/auth/qrcode", "/api/auth/signin?client=h5", "/api/agents/login"] {
        assert_eq!(Urgency::of(path.as_bytes()), Urgency::Urgent, "{path}");
    }
    for path in ["", "/", "/api/desk/api/auth/", "/api/agents/password", "/API/ready"] {
        assert_eq!(Urgency::of(path.as_bytes()), Urgency::Normal, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_is_not_read_waits_only_so_long() {
    let limit = limit();
    let _slots = fill(&limit).await;
    let mut first = Box::pin(limit.begin(|| Urgency::Normal));
    assert!(first.as_mut().now_or_never().is_none());
    let began = Instant::now();
    assert!(limit.begin_if_others_wait().await.is_none());
    assert_eq!(began.elapsed(), LONGEST_UNREAD_WAIT);
    assert!(first.as_mut().now_or_never().is_none(), "it has kept its place");
}

#[tokio::test(start_paused = true)]
async fn request_that_cannot_have_its_turn_in_time_is_refused_at_once() {
    let limit = limit();
    let turns = TurnCount::of(&limit);
    limit.turns_taken.fetch_add(10, Ordering::Relaxed);
    tokio::time::advance(TURN_COUNT_INTERVAL).await;
    let _slots = fill(&limit).await;
    // Twenty in a second, a hundred in five.
    limit.most_waiting.store(turns.possible_in_time(&limit), Ordering::Relaxed);
    let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(limit.begin(|| Urgency::Normal))).collect();
    assert!(waiting.iter_mut().all(|request| request.as_mut().now_or_never().is_none()));
    let refused = limit.begin(|| Urgency::Normal).now_or_never().expect("at once");
    assert_eq!(refused.map(drop), Err(Saturated));
    assert!(limit.begin(|| Urgency::Urgent).now_or_never().is_some(), "an urgent one begins");
}

#[tokio::test(start_paused = true)]
async fn only_urgent_requests_begin_while_memory_is_short() {
    let limit = limit();
    limit.set_short_of_memory(true);
    limit.adjust(false);
    let refused = limit.begin(|| Urgency::Normal).now_or_never().expect("at once");
    assert_eq!(refused.map(drop), Err(Saturated));
    assert!(limit.begin(|| Urgency::Urgent).now_or_never().expect("at once").is_ok());
    limit.set_short_of_memory(false);
    assert!(limit.begin(|| Urgency::Normal).now_or_never().expect("at once").is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_adjustment_that_began_before_does_not_lift_the_shortage() {
    let limit = limit();
    limit.set_short_of_memory(true);
    limit.limit.store(limit.least, Ordering::Relaxed);
    limit.set_short_of_memory(true);
    let refused = limit.begin(|| Urgency::Normal).now_or_never().expect("at once");
    assert_eq!(refused.map(drop), Err(Saturated));
}

use super::*;

fn slots(count: usize) -> (ConnectionSlots, Metrics) {
    let metrics = Metrics::new().expect("metrics");
    (ConnectionSlots::new(count, &metrics), metrics)
}

#[tokio::test]
async fn fewer_slots_are_there_when_enough_connections_have_ended() {
    let (slots, _metrics) = slots(3);
    let mut open: Vec<_> = std::iter::from_fn(|| slots.try_acquire().ok()).collect();
    assert_eq!(open.len(), 3);
    slots.resize(1);
    tokio::task::yield_now().await;
    open.truncate(1);
    tokio::task::yield_now().await;
    assert!(slots.try_acquire().is_err(), "one of one is in use");
    open.clear();
    assert_eq!(std::iter::from_fn(|| slots.try_acquire().ok()).collect::<Vec<_>>().len(), 1);
}

#[tokio::test]
async fn more_slots_are_there_at_once() {
    let (slots, _metrics) = slots(1);
    let _open = slots.try_acquire().expect("a slot");
    assert!(slots.try_acquire().is_err());
    slots.resize(2);
    assert!(slots.try_acquire().is_ok());
}

#[tokio::test]
async fn open_connections_their_limit_and_each_stop_are_counted() {
    let (slots, metrics) = slots(2);
    let reached = || metrics.limit_counter("connections").get();
    let first = slots.occupy(slots.acquire().await.expect("a slot"));
    let second = slots.occupy(slots.acquire().await.expect("a slot"));
    assert_eq!((metrics.connections_open.get(), metrics.connections_limit.get(), reached()), (2, 2, 0));
    for stops in 1..=2 {
        let mut waiting = std::pin::pin!(slots.acquire());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert_eq!(reached(), stops);
    }
    drop(first);
    assert_eq!(metrics.connections_open.get(), 1);
    assert!(slots.acquire().await.is_ok());
    slots.resize(5);
    assert_eq!((metrics.connections_limit.get(), reached()), (5, 2));
    drop(second);
    assert_eq!(metrics.connections_open.get(), 0);
}

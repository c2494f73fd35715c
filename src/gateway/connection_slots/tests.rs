use super::*;

#[tokio::test]
async fn fewer_slots_are_there_when_enough_connections_have_ended() {
    let slots = ConnectionSlots::new(3);
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
    let slots = ConnectionSlots::new(1);
    let _open = slots.try_acquire().expect("a slot");
    assert!(slots.try_acquire().is_err());
    slots.resize(2);
    assert!(slots.try_acquire().is_ok());
}

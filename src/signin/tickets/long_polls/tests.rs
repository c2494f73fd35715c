use std::time::Duration;

use super::*;

fn tickets_with_waiters(polls: &LongPolls) -> usize {
    polls.by_ticket.lock().expect("the lock").len()
}

#[test]
fn the_last_poll_of_a_ticket_removes_its_waiters() {
    let (polls, id) = (LongPolls::default(), TicketId::new("t1"));
    let first = polls.join(&id);
    let second = polls.join(&id);
    assert!(std::ptr::eq(first.waiters(), second.waiters()), "polls of one ticket wait together");
    drop(first);
    assert_eq!(tickets_with_waiters(&polls), 1);
    drop(second);
    assert_eq!(tickets_with_waiters(&polls), 0);
}

#[tokio::test]
async fn a_cancelled_poll_removes_its_waiters() {
    let (polls, id) = (LongPolls::default(), TicketId::new("t1"));
    let poll = async {
        let guard = polls.join(&id);
        guard.waiters().changed.notified().await;
    };
    assert!(tokio::time::timeout(Duration::from_millis(1), poll).await.is_err());
    assert_eq!(tickets_with_waiters(&polls), 0);
}

use std::time::Duration;

use super::*;
use crate::domain::ticket::TicketId;

fn network(number: u32) -> Network {
    Network::of(number.to_be_bytes().into())
}

fn tickets_with_waiters(polls: &LongPolls) -> usize {
    polls.state().by_ticket.len()
}

#[test]
fn the_last_poll_of_a_ticket_removes_its_waiters() {
    let (polls, id) = (LongPolls::default(), TicketId::new("t1").digest());
    let first = polls.join(&id, network(1), Patience::Wait);
    let second = polls.join(&id, network(2), Patience::AtOnce);
    assert!(std::ptr::eq(first.waiters(), second.waiters()), "polls of one ticket wait together");
    drop(first);
    assert_eq!(tickets_with_waiters(&polls), 1);
    drop(second);
    assert_eq!(tickets_with_waiters(&polls), 0);
    assert!(polls.state().by_network.is_empty());
}

#[tokio::test]
async fn a_cancelled_poll_removes_its_waiters() {
    let (polls, id) = (LongPolls::default(), TicketId::new("t1").digest());
    let poll = async {
        let guard = polls.join(&id, network(1), Patience::Wait);
        guard.waiters().changed.notified().await;
    };
    assert!(tokio::time::timeout(Duration::from_millis(1), poll).await.is_err());
    assert_eq!(tickets_with_waiters(&polls), 0);
    assert!(polls.state().by_network.is_empty());
}

#[test]
fn polls_beyond_the_limit_of_a_ticket_do_not_wait() {
    let (polls, crowded, other) = (LongPolls::default(), TicketId::new("t1").digest(), TicketId::new("t2").digest());
    let join = |id, client| polls.join(id, network(client), Patience::Wait);
    let mut held: Vec<_> = (0..400).map(|client| join(&crowded, client)).collect();
    let waiting = |held: &[WaiterGuard]| held.iter().filter(|poll| poll.patience == Patience::Wait).count();
    assert_eq!(waiting(&held), MAX_PER_TICKET);
    assert_eq!(join(&other, 0).patience, Patience::Wait, "another ticket");
    held.remove(0);
    assert_eq!(join(&crowded, 0).patience, Patience::Wait, "a place that became free");
}

#[test]
fn polls_beyond_the_limit_of_a_network_do_not_wait() {
    let polls = LongPolls::default();
    let ids: Vec<TicketDigest> =
        (0..=MAX_PER_NETWORK).map(|number| TicketId::new(format!("t{number}")).digest()).collect();
    let held: Vec<_> = ids.iter().map(|id| polls.join(id, network(1), Patience::Wait)).collect();
    assert_eq!(held.iter().filter(|poll| poll.patience == Patience::Wait).count(), MAX_PER_NETWORK);
    assert_eq!(polls.join(&ids[0], network(2), Patience::Wait).patience, Patience::Wait, "another network");
}

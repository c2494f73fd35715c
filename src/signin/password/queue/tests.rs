use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn queue(parallel: usize, waiting: usize, longest_wait: Duration) -> HashQueue {
    HashQueue::new(NonZeroUsize::new(parallel).expect("not zero"), waiting, longest_wait)
}

/// Polls a future once, without waiting.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

async fn enter(queue: &HashQueue) -> Result<HashPermit, Busy> {
    queue.reserve()?.wait().await
}

#[tokio::test]
async fn the_queue_limits_running_and_waiting_hashes() {
    let queue = queue(2, 1, LONG);
    let first = enter(&queue).await.expect("a permit");
    let _second = enter(&queue).await.expect("a permit");
    let mut third = pin!(enter(&queue));
    assert!(poll_once(third.as_mut()).is_pending());
    assert_eq!((queue.running(), queue.waiting()), (2, 1));
    assert_eq!(enter(&queue).await.map(drop), Err(Busy { retry_after: LONG }));

    drop(first);
    let third = third.await.expect("the first one's permit");
    assert_eq!((queue.running(), queue.waiting()), (2, 0));
    drop(third);
    assert_eq!((queue.running(), queue.waiting()), (1, 0));
}

#[tokio::test]
async fn a_slot_that_times_out_is_freed() {
    let queue = queue(1, 5, Duration::ZERO);
    let permit = enter(&queue).await.expect("a free permit needs no wait");
    for _ in 0..20 {
        assert!(enter(&queue).await.is_err());
    }
    assert_eq!((queue.running(), queue.waiting()), (1, 0));
    drop(permit);
    assert!(enter(&queue).await.is_ok());
}

#[tokio::test]
async fn a_dropped_slot_is_freed() {
    let queue = queue(1, 1, LONG);
    let _permit = enter(&queue).await.expect("a permit");
    {
        let mut dropped = pin!(enter(&queue));
        assert!(poll_once(dropped.as_mut()).is_pending());
        assert_eq!(queue.waiting(), 1);
    }
    assert_eq!(queue.waiting(), 0);
    let mut next = pin!(enter(&queue));
    assert!(poll_once(next.as_mut()).is_pending(), "the slot is free again");
}

#[tokio::test]
async fn waiting_slots_run_in_order() {
    let queue = queue(1, 2, LONG);
    let permit = enter(&queue).await.expect("a permit");
    let (mut first, mut second) = (pin!(enter(&queue)), pin!(enter(&queue)));
    assert!(poll_once(first.as_mut()).is_pending() && poll_once(second.as_mut()).is_pending());
    drop(permit);
    assert!(poll_once(second.as_mut()).is_pending());
    assert!(poll_once(first.as_mut()).is_ready());
}

#[test]
fn retry_after_is_at_least_a_second() {
    for (longest_wait, expected) in [(0, 1_000), (300, 1_000), (5_000, 5_000)] {
        let busy = queue(1, 0, Duration::from_millis(longest_wait)).busy();
        assert_eq!(busy.retry_after, Duration::from_millis(expected));
    }
}

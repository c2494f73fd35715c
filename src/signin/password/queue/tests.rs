use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn gate(parallel: usize, waiting: usize, longest_wait: Duration) -> Gate {
    Gate::new(NonZeroUsize::new(parallel).expect("not zero"), waiting, longest_wait)
}

/// One look at a future, without waiting.
fn look<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

async fn enter(gate: &Gate) -> Result<Pass, Busy> {
    gate.place()?.turn().await
}

#[tokio::test]
async fn as_many_run_as_may_some_wait_and_the_next_is_sent_away() {
    let gate = gate(2, 1, LONG);
    let first = enter(&gate).await.expect("a turn");
    let _second = enter(&gate).await.expect("a turn");
    let mut third = pin!(enter(&gate));
    assert!(look(third.as_mut()).is_pending());
    assert_eq!((gate.running(), gate.waiting()), (2, 1));
    assert_eq!(enter(&gate).await.map(drop), Err(Busy { retry_after: LONG }));

    drop(first);
    let third = third.await.expect("the turn of the first");
    assert_eq!((gate.running(), gate.waiting()), (2, 0));
    drop(third);
    assert_eq!((gate.running(), gate.waiting()), (1, 0));
}

#[tokio::test]
async fn who_waited_too_long_is_sent_away_and_leaves_no_trace() {
    let gate = gate(1, 5, Duration::ZERO);
    let pass = enter(&gate).await.expect("a free turn needs no wait");
    for _ in 0..20 {
        assert!(enter(&gate).await.is_err());
    }
    assert_eq!((gate.running(), gate.waiting()), (1, 0));
    drop(pass);
    assert!(enter(&gate).await.is_ok());
}

#[tokio::test]
async fn who_goes_away_gives_up_the_place() {
    let gate = gate(1, 1, LONG);
    let _pass = enter(&gate).await.expect("a turn");
    {
        let mut gone = pin!(enter(&gate));
        assert!(look(gone.as_mut()).is_pending());
        assert_eq!(gate.waiting(), 1);
    }
    assert_eq!(gate.waiting(), 0);
    let mut next = pin!(enter(&gate));
    assert!(look(next.as_mut()).is_pending(), "the place is free again");
}

#[tokio::test]
async fn those_who_wait_are_served_in_their_order() {
    let gate = gate(1, 2, LONG);
    let pass = enter(&gate).await.expect("a turn");
    let (mut first, mut second) = (pin!(enter(&gate)), pin!(enter(&gate)));
    assert!(look(first.as_mut()).is_pending() && look(second.as_mut()).is_pending());
    drop(pass);
    assert!(look(second.as_mut()).is_pending());
    assert!(look(first.as_mut()).is_ready());
}

#[test]
fn nobody_is_told_to_come_back_in_less_than_a_second() {
    for (wait, told) in [(0, 1_000), (300, 1_000), (5_000, 5_000)] {
        let busy = gate(1, 0, Duration::from_millis(wait)).busy();
        assert_eq!(busy.retry_after, Duration::from_millis(told));
    }
}

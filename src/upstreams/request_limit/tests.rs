use super::*;
use crate::config::HumanDuration;

fn limit(max_requests: usize, queue: usize) -> RequestLimit {
    let queue_timeout = HumanDuration::millis(50);
    RequestLimit::new(&UpstreamConfig { max_requests, queue, queue_timeout, ..Default::default() }).expect("a limit")
}

#[tokio::test]
async fn requests_beyond_the_limit_wait_for_one_to_end() {
    let limit = limit(1, 1);
    let first = limit.begin().await.expect("a slot");
    let (second, ()) = tokio::join!(limit.begin(), async { drop(first) });
    assert!(second.is_ok());
}

#[tokio::test]
async fn a_full_queue_and_a_long_wait_are_refused() {
    let limit = limit(1, 1);
    let _first = limit.begin().await.expect("a slot");
    let mut waiting = Box::pin(limit.begin());
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(limit.begin().await.map(drop), Err(UpstreamBusy), "the queue is full");
    assert_eq!(waiting.await.map(drop), Err(UpstreamBusy), "the wait is over");
    let mut next = Box::pin(limit.begin());
    assert!(futures::poll!(&mut next).is_pending(), "the queue is empty again");
}

#[test]
fn no_limit_is_the_default() {
    assert!(RequestLimit::new(&UpstreamConfig::default()).is_none());
}

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn is_due(deadline: &mut Deadline, waker: &Arc<CountingWaker>) -> bool {
    deadline.poll(&mut Context::from_waker(&Waker::from(waker.clone())), SECOND).is_ready()
}

#[tokio::test(start_paused = true)]
async fn deadline_that_moved_on_is_kept() {
    let start = Instant::now();
    let mut deadline = Deadline::after(SECOND);
    assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx, SECOND).is_pending())).await);
    deadline.set_at((Instant::now() + 3 * SECOND).into_std());
    poll_fn(|cx| deadline.poll(cx, SECOND)).await;
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn deadline_that_was_brought_forward_is_kept() {
    let start = Instant::now();
    let mut deadline = Deadline::after(5 * SECOND);
    assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx, SECOND).is_pending())).await);
    deadline.bring_forward(2 * SECOND);
    poll_fn(|cx| deadline.poll(cx, SECOND)).await;
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn deadline_wakes_the_task_that_polled_last() {
    let [first, second] = [(); 2].map(|()| Arc::<CountingWaker>::default());
    let mut deadline = Deadline::after(SECOND);
    assert!(!is_due(&mut deadline, &first));
    assert!(!is_due(&mut deadline, &second));
    tokio::time::sleep(SECOND).await;
    let woken = [&first, &second].map(|waker| waker.0.load(Ordering::SeqCst));
    assert_eq!(woken, [0, 1]);
    assert!(is_due(&mut deadline, &second));
}

#[tokio::test(start_paused = true)]
async fn same_waker_is_woken_for_every_deadline() {
    let waker = Arc::<CountingWaker>::default();
    let mut deadline = Deadline::after(SECOND);
    for passed in 1..=3 {
        assert!(!is_due(&mut deadline, &waker));
        assert!(!is_due(&mut deadline, &waker), "polled again with the same waker");
        tokio::time::sleep(SECOND).await;
        assert_eq!(waker.0.load(Ordering::SeqCst), passed);
        assert!(is_due(&mut deadline, &waker));
        deadline.set_at((Instant::now() + SECOND).into_std());
    }
}

#[tokio::test(start_paused = true)]
async fn early_timer_is_armed_again_for_the_same_waker() {
    let waker = Arc::<CountingWaker>::default();
    let mut deadline = Deadline::after(SECOND);
    assert!(!is_due(&mut deadline, &waker));
    deadline.set_at((Instant::now() + 3 * SECOND).into_std());
    tokio::time::sleep(SECOND).await;
    assert_eq!(waker.0.load(Ordering::SeqCst), 1);
    assert!(!is_due(&mut deadline, &waker), "it has two seconds left");
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(waker.0.load(Ordering::SeqCst), 2);
    assert!(is_due(&mut deadline, &waker));
}

#[tokio::test(start_paused = true)]
async fn deadline_that_was_set_back_into_the_past_is_due() {
    let waker = Arc::<CountingWaker>::default();
    let start = Instant::now();
    let mut deadline = Deadline::after(2 * SECOND);
    assert!(!is_due(&mut deadline, &waker));
    tokio::time::sleep(2 * SECOND).await;
    deadline.set_at((start + SECOND).into_std());
    assert!(is_due(&mut deadline, &waker), "it is a second late");
}

#[tokio::test(start_paused = true)]
async fn deadline_is_kept_after_a_poll_without_budget() {
    let start = Instant::now();
    let mut deadline = Deadline::after(SECOND);
    let is_pending = poll_fn(|cx| {
        while let Poll::Ready(progress) = tokio::task::coop::poll_proceed(cx) {
            progress.made_progress();
        }
        Poll::Ready(deadline.poll(cx, SECOND).is_pending())
    });
    assert!(is_pending.await);
    tokio::time::timeout(5 * SECOND, poll_fn(|cx| deadline.poll(cx, SECOND))).await.expect("the deadline");
    assert_eq!(start.elapsed().as_secs(), 1);
}

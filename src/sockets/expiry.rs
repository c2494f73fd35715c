//! The end of the token that a WebSocket was opened with.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::domain::clock::{Clock, Timestamp};

/// Fires when a token expires, also if the wall clock is set back meanwhile. If that is set forward, it may fire late:
/// `app::clock_watch` finds what a jump has ended.
pub(crate) struct Expiry {
    clock: Clock,
    end: Timestamp,
    timer: Pin<Box<Sleep>>,
    /// Whether the timer knows whom to wake.
    is_watched: bool,
}

impl Expiry {
    pub(crate) fn at(end: Timestamp, clock: Clock) -> Self {
        let timer = Box::pin(tokio::time::sleep(clock.now().until(end)));
        Self { clock, end, timer, is_watched: false }
    }

    /// Ready once the token has expired. Always polled by the same task: the timer wakes the task that polled it first, because a
    /// message must not pay for telling it again.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_watched && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            // A task that has used up its budget is woken at once, but the timer does not learn about it.
            self.is_watched = tokio::task::coop::has_budget_remaining();
            ready!(self.timer.as_mut().poll(cx));
            match self.clock.now().until(self.end) {
                Duration::ZERO => return Poll::Ready(()),
                left => self.timer.as_mut().reset(Instant::now() + left),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn fires_when_the_wall_clock_reaches_the_end_and_not_before() {
        let clock = Clock::system();
        let (started, mut expiry) = (Instant::now(), Expiry::at(clock.now().plus(HOUR), clock.clone()));
        assert!(futures::poll!(poll_fn(|cx| expiry.poll(cx))).is_pending());
        assert!(futures::poll!(poll_fn(|cx| expiry.poll(cx))).is_pending(), "as when a message passes");
        // Only tokio's time passes, as if the wall clock had been set back.
        tokio::time::advance(HOUR).await;
        assert!(futures::poll!(poll_fn(|cx| expiry.poll(cx))).is_pending(), "the wall clock has not reached the end");
        clock.advance(HOUR);
        poll_fn(|cx| expiry.poll(cx)).await;
        assert!(started.elapsed() > HOUR, "it fires with the timer: {:?}", started.elapsed());
    }
}

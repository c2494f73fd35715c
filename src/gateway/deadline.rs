//! A deadline that moves with every request. Its timer is armed again only when it has fired before the deadline, or would fire behind it:
//! most requests arrive in time, and arming a timer costs more than a needless wake-up.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

pub(super) struct Deadline {
    /// None while nothing is expected.
    due: Option<Instant>,
    /// Fires at the deadline or before it.
    timer: Option<Pin<Box<Sleep>>>,
    /// The waker that the timer has. Comparing it costs less than registering it again with every poll.
    waker: Option<Waker>,
}

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Self {
        Self { due: Some(Instant::now() + timeout), timer: None, waker: None }
    }

    pub(super) fn none() -> Self {
        Self { due: None, timer: None, waker: None }
    }

    pub(super) fn set_at(&mut self, due: std::time::Instant) {
        self.due = Some(due.into());
    }

    /// Moves the deadline to `timeout` from now, unless it is sooner already.
    pub(super) fn bring_forward(&mut self, timeout: Duration) {
        let latest = Instant::now() + timeout;
        self.due = Some(self.due.map_or(latest, |due| due.min(latest)));
    }

    /// Clears the deadline; the next poll starts a new one.
    pub(super) fn clear(&mut self) {
        self.due = None;
    }

    /// Frees the timer of a deadline that is not polled again.
    pub(super) fn drop_timer(&mut self) {
        (self.timer, self.waker) = (None, None);
    }

    /// Ready once the deadline has passed. Without a deadline it starts one of `timeout`.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        let due = *self.due.get_or_insert_with(|| Instant::now() + timeout);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
            // A timer that has fired wakes nobody until it is polled again.
            self.waker = None;
        }
        let is_registered = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_registered && !timer.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            // A task that has used up its budget is woken at once, but the timer does not learn about it.
            let registers = tokio::task::coop::has_budget_remaining();
            if timer.as_mut().poll(cx).is_pending() {
                self.waker = registers.then(|| cx.waker().clone());
                return Poll::Pending;
            }
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests;

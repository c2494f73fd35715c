//! Watches the wall clock. When it jumps, because it was set or because the machine was suspended, whatever waits for a
//! time is judged again: timers run by the monotonic clock, which a jump does not move and which stands still during a
//! suspension.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use crate::domain::clock::{Clock, Timestamp};
use crate::pipeline::Gate;
use crate::signin::SignInServices;
use crate::sockets::registry::Registry;
use crate::store::rate_leases::LeasedRates;

/// How often the wall clock is compared with the monotonic one.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Differences up to this are not jumps: the two clocks are never read at the same moment.
const TOLERANCE_MILLIS: u64 = 3_000;

/// How often tokens of WebSockets and exchanges are judged without a jump, for a clock that drifts in small steps.
const JUDGE_INTERVAL: Duration = Duration::from_secs(30);

/// How long records are kept after the clock has jumped forward, so that it can be set right before they are removed.
const SETTLING_TIME: Duration = Duration::from_secs(60 * 60);

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    wall: Timestamp,
    running: Duration,
}

impl ClockReading {
    fn of(clock: &Clock) -> Self {
        loop {
            let reading = Self { wall: clock.now(), running: clock.running() };
            // A process that was stopped between the two would take that for a jump.
            if clock.now().millis().abs_diff(reading.wall.millis()) < TOLERANCE_MILLIS {
                return reading;
            }
        }
    }

    /// How far the wall clock has moved since `earlier` beyond the time that passed, in milliseconds.
    fn jump_since(self, earlier: ClockReading) -> i64 {
        let passed = i64::try_from(self.running.saturating_sub(earlier.running).as_millis()).unwrap_or(i64::MAX);
        let moved = self.wall.millis().saturating_sub(earlier.wall.millis());
        moved.saturating_sub(passed)
    }
}

/// The jumps of the wall clock since the watch was made.
pub(super) struct ClockWatch {
    first: ClockReading,
    jumped: Notify,
    /// When the wall clock last jumped forward, by the monotonic clock.
    last_forward: Mutex<Option<Duration>>,
}

impl ClockWatch {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { first: ClockReading::of(clock), jumped: Notify::new(), last_forward: Mutex::new(None) }
    }

    /// Resolves after a jump; supports one waiting task.
    pub(super) async fn jumped(&self) {
        self.jumped.notified().await;
    }

    /// Whether expired records may be removed. Not soon after a jump forward, which may be a mistake: once the clock is
    /// right again, they have not expired.
    pub(super) fn is_settled(&self, clock: &Clock) -> bool {
        let last = *self.last_forward.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|last| clock.running() >= last + SETTLING_TIME)
    }

    /// Compares a reading with the one before. Returns how far the wall clock jumped, in milliseconds, if it did.
    fn observe(&self, reading: ClockReading, earlier: ClockReading) -> Option<i64> {
        let jump = reading.jump_since(earlier);
        if jump.unsigned_abs() <= TOLERANCE_MILLIS {
            return None;
        }
        if jump > 0 {
            *self.last_forward.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading.running);
        }
        self.jumped.notify_one();
        Some(jump)
    }

    /// Watches until the task is cancelled.
    pub(super) async fn run(
        self: Arc<Self>,
        gate: Arc<Gate>,
        registry: Arc<Registry>,
        signin: Arc<SignInServices>,
        rates: Option<LeasedRates>,
    ) {
        let mut tick = tokio::time::interval(WATCH_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut earlier = self.first;
        let mut judged = earlier.running;
        loop {
            tick.tick().await;
            let reading = ClockReading::of(&gate.clock);
            let jump = self.observe(reading, earlier);
            earlier = reading;
            if let Some(jump) = jump {
                let direction = if jump > 0 { "forward" } else { "back" };
                gate.metrics.clock_jumps.with_label_values(&[direction]).inc();
                tracing::warn!({ seconds = jump as f64 / 1000.0 }, "the wall clock jumped: checking what is open");
                if jump > 0 {
                    // The machine may have stood still while sessions ended elsewhere.
                    gate.sessions.store().feed().forget();
                }
                signin.wake_all_polls();
                if let Some(rates) = &rates {
                    rates.forget_leases();
                }
            }
            if jump.is_some() || reading.running >= judged + JUDGE_INTERVAL {
                judged = reading.running;
                registry.close_invalid(reading.wall, gate.tokens.leeway());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

    /// What the watch observes when this happens to the clock.
    fn observed(watch: &ClockWatch, clock: &Clock, happens: impl Fn(&Clock)) -> Option<i64> {
        let earlier = ClockReading::of(clock);
        happens(clock);
        watch.observe(ClockReading::of(clock), earlier).map(|millis| (millis as f64 / 1000.0).round() as i64)
    }

    #[test]
    fn jumps_are_told_from_time_that_passes() {
        let clock = Clock::system();
        let watch = ClockWatch::new(&clock);
        assert_eq!(observed(&watch, &clock, |clock| clock.advance(TEN_YEARS)), None, "time passes");
        assert_eq!(observed(&watch, &clock, |clock| clock.set_forward(Duration::from_secs(1))), None, "a correction");
        assert_eq!(observed(&watch, &clock, |clock| clock.set_back(Duration::from_secs(1))), None, "a correction");
        assert!(watch.is_settled(&clock));
        assert_eq!(observed(&watch, &clock, |clock| clock.set_forward(HOUR)), Some(3600));
        assert_eq!(observed(&watch, &clock, |clock| clock.set_back(HOUR)), Some(-3600));
        assert_eq!(observed(&watch, &clock, |clock| clock.set_forward(TEN_YEARS)), Some(315_360_000));
    }

    #[test]
    fn records_are_kept_for_an_hour_after_a_jump_forward() {
        let clock = Clock::system();
        let watch = ClockWatch::new(&clock);
        observed(&watch, &clock, |clock| clock.set_back(TEN_YEARS));
        assert!(watch.is_settled(&clock), "nothing expires when the clock is set back");
        observed(&watch, &clock, |clock| clock.set_forward(TEN_YEARS));
        assert!(!watch.is_settled(&clock));
        clock.advance(HOUR - Duration::from_secs(1));
        assert!(!watch.is_settled(&clock));
        clock.advance(Duration::from_secs(1));
        assert!(watch.is_settled(&clock));
    }
}

//! How many frames besides requests and bodies a client may send. Real clients stay far below: they acknowledge
//! settings, answer and send a ping now and then, and update windows as they take bytes.

use std::time::Instant;

use super::FrameFlood;

/// The most frames at once.
const BURST: u64 = 5_000;

/// The frames of each second after the burst.
const PER_SECOND: u64 = 1_000;

/// Each time the client takes this many bytes of a response it may send one more frame, because some clients update two
/// windows for every frame of data.
const BYTES_PER_FRAME: usize = 1_024;

/// The frames that a client may still send. The clock is read only when none is left.
#[derive(Debug)]
pub(super) struct FrameBudget {
    left: u64,
    refilled: Instant,
}

impl FrameBudget {
    pub(super) fn new() -> Self {
        Self { left: BURST, refilled: Instant::now() }
    }

    /// Counts a frame that the client sent.
    pub(super) fn spend(&mut self) -> Result<(), FrameFlood> {
        if self.left == 0 {
            self.refill(Instant::now());
        }
        self.left = self.left.checked_sub(1).ok_or(FrameFlood)?;
        Ok(())
    }

    /// Counts bytes of responses that were sent to the client.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.left = BURST.min(self.left + (bytes / BYTES_PER_FRAME) as u64);
    }

    fn refill(&mut self, now: Instant) {
        let millis = u64::try_from(now.duration_since(self.refilled).as_millis()).unwrap_or(u64::MAX);
        let frames = millis.saturating_mul(PER_SECOND) / 1_000;
        if frames > 0 {
            self.left = frames.min(BURST);
            self.refilled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Spends frames until none is left.
    fn spend_all(budget: &mut FrameBudget) -> u64 {
        let mut spent = 0;
        while budget.left > 0 && budget.spend().is_ok() {
            spent += 1;
        }
        spent
    }

    #[test]
    fn time_and_responses_refill_the_budget() {
        let mut budget = FrameBudget::new();
        let began = budget.refilled;
        assert_eq!(spend_all(&mut budget), BURST);
        for (case, seconds, left) in [("one second", 1, PER_SECOND), ("an hour", 3600, BURST)] {
            budget.left = 0;
            budget.refilled = began;
            budget.refill(began + Duration::from_secs(seconds));
            assert_eq!(budget.left, left, "{case}");
        }
        for (case, bytes, left) in
            [("a tiny frame", 1, 0), ("a full frame", 16_384, 16), ("a download", 1 << 30, BURST)]
        {
            budget.left = 0;
            budget.earn(bytes);
            assert_eq!(budget.left, left, "{case}");
        }
    }

    #[test]
    fn flood_is_refused() {
        let mut budget = FrameBudget::new();
        let refused = (0..1_000_000).any(|_| budget.spend() == Err(FrameFlood));
        assert!(refused, "a million frames were admitted at once");
    }
}

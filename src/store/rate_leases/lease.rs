//! The lease of one key: the client side of the protocol, without I/O and without a clock of its own.

use std::time::Duration;

use super::demand::Demand;
use super::ledger::{LeaseAsk, LeaseGrant};
use crate::domain::rate::{Charged, Window};
use crate::store::rate_counters::sliding_window::{SlidingWindow, nanoseconds};

/// Smaller limits are counted request by request: there is nothing to lease ahead.
pub(super) const SMALLEST_LEASED_LIMIT: u32 = 16;

/// A gateway leases a share if it expects this many requests until the next renewal, and returns it below one.
const LEASE_FROM: f64 = 2.0;

/// How long shares are valid: half the window, within these bounds.
const MIN_VALIDITY: u64 = 1_000_000_000;
const MAX_VALIDITY: u64 = 60_000_000_000;

/// How often demand and share are compared: 16 times per window, within these bounds.
const MIN_REVIEW: u64 = 50_000_000;
const MAX_REVIEW: u64 = 5_000_000_000;

/// Clocks may differ in speed by one in a thousand.
const CLOCK_TOLERANCE: u64 = 1000;

/// The times of a window, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseTimes {
    /// The window, longer by what this clock may run faster than the ledger's.
    length: u64,
    /// How long a share is valid by the ledger's clock.
    pub(super) validity: u64,
    /// How often demand and share are compared.
    pub(super) review: u64,
    /// How far ahead demand is covered.
    horizon: u64,
}

impl LeaseTimes {
    pub(super) fn of(window: Window) -> Self {
        let length = nanoseconds(window.per);
        Self {
            length: length.saturating_add(length / CLOCK_TOLERANCE),
            validity: (length / 2).clamp(MIN_VALIDITY, MAX_VALIDITY),
            review: (length / 16).clamp(MIN_REVIEW, MAX_REVIEW),
            horizon: (length / 4).clamp(1, MAX_VALIDITY / 2),
        }
    }

    /// How long a share may be used after it was asked for, by this clock.
    fn usable(self) -> u64 {
        self.validity - self.validity / 64
    }
}

/// What this gateway knows of one key. All times are nanoseconds of its clock.
#[derive(Debug)]
pub(super) struct RateLease {
    window: Window,
    times: LeaseTimes,
    /// The requests that this gateway admitted itself.
    admitted: SlidingWindow,
    /// The most that it may have admitted at any time in a window.
    share: u32,
    valid_until: u64,
    renew_at: u64,
    sequence: u64,
    demand: Demand,
    /// The ledger has nothing to give until then.
    ask_after: u64,
    /// The share is not renewed before it is used up until then: it did not grow the last time.
    prefetch_after: u64,
    /// When refused requests are told to come back.
    retry_at: u64,
}

/// The result of a charge without the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeasedCharge {
    /// Counted, or refused.
    Counted(Charged),
    /// Counted; the share should be renewed soon.
    CountedAskSoon(Charged),
    /// The ledger has to be asked.
    MustAsk,
}

/// What a review found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Review {
    /// There is no share to look after.
    Over,
    /// The share fits.
    Fits,
    /// The ledger is to be asked.
    Ask,
}

/// Whether a request is counted as demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChargeTurn {
    First,
    /// It was counted before the ledger was asked.
    Again,
}

impl RateLease {
    pub(super) fn new(window: Window, now: u64) -> Self {
        Self {
            window,
            times: LeaseTimes::of(window),
            admitted: SlidingWindow::new(now),
            share: 0,
            valid_until: 0,
            renew_at: 0,
            sequence: 0,
            demand: Demand::new(now),
            ask_after: 0,
            prefetch_after: 0,
            retry_at: 0,
        }
    }

    /// Counts a request within the share, or says that the ledger has to be asked.
    pub(super) fn charge(&mut self, window: Window, now: u64, turn: ChargeTurn) -> LeasedCharge {
        self.set_window(window);
        if turn == ChargeTurn::First {
            self.demand.note(now);
        }
        if !self.is_valid(now) {
            return self.refuse_or_ask(now, u64::MAX);
        }
        let share = self.share.min(window.limit);
        match self.admitted.charge_share(self.counted_window(), share, now) {
            admitted @ Charged::Admitted { left } => {
                let runs_out = share < window.limit && left <= share / 16 && now >= self.prefetch_after;
                if runs_out || now >= self.renew_at {
                    LeasedCharge::CountedAskSoon(admitted)
                } else {
                    LeasedCharge::Counted(admitted)
                }
            }
            refused @ Charged::Refused { .. } if share == window.limit => LeasedCharge::Counted(refused),
            Charged::Refused { retry_after } => self.refuse_or_ask(now, nanoseconds(retry_after)),
        }
    }

    /// Counts a request within `limit`, whatever the ledger says: for outages.
    pub(super) fn charge_alone(&mut self, window: Window, limit: u32, now: u64) -> Charged {
        self.set_window(window);
        self.admitted.charge_share(self.counted_window(), limit, now)
    }

    /// Takes back a request that was admitted at `at`.
    pub(super) fn refund(&mut self, at: u64) {
        self.admitted.refund(at);
    }

    fn refuse_or_ask(&self, now: u64, own_wait: u64) -> LeasedCharge {
        if now >= self.ask_after {
            return LeasedCharge::MustAsk;
        }
        let wait = self.retry_at.saturating_sub(now).min(own_wait).max(1);
        LeasedCharge::Counted(Charged::Refused { retry_after: Duration::from_nanos(wait) })
    }

    /// Compares the share with the demand. Lowers a share that is not needed: the ledger must be told then.
    pub(super) fn review(&mut self, now: u64) -> Review {
        if !self.is_valid(now) {
            return Review::Over;
        }
        let before = self.share;
        self.fit_share(0, now);
        if self.share < before || now >= self.renew_at { Review::Ask } else { Review::Fits }
    }

    /// Lowers the share to what is needed, if it is much less, and returns the need.
    fn fit_share(&mut self, waiting: u32, now: u64) -> u32 {
        let times = self.times;
        let expected = self.demand.expected(now, times.review, times.horizon);
        let is_idle = now.saturating_sub(self.demand.last()) > 2 * times.review;
        let threshold = if self.share > 0 { 1.0 } else { LEASE_FROM };
        let is_sparse = self.demand.is_first() || expected < threshold;
        if self.window.limit < SMALLEST_LEASED_LIMIT || is_idle || is_sparse {
            self.share = 0;
            return 0;
        }
        let used = self.used(now);
        // At most about twice of what is used until the demand was measured: the first burst of requests does not take
        // everything from the other gateways.
        let most = if self.demand.is_measured() { self.window.limit } else { used.saturating_mul(2).saturating_add(8) };
        let expected = (expected.ceil() as u32).min(most.saturating_sub(used)).max(waiting);
        let need = used.saturating_add(expected).min(self.window.limit);
        let want = with_reserve(need);
        if want < self.share / 4 * 3 {
            self.share = want;
        }
        need
    }

    /// What to ask the ledger for, with so many requests waiting for the answer.
    pub(super) fn ask(&mut self, record: String, waiting: u32, now: u64) -> LeaseAsk {
        self.sequence += 1;
        if !self.is_valid(now) {
            self.share = 0;
        }
        let need = self.fit_share(waiting, now);
        let want = if need == 0 { 0 } else { with_reserve(need).max(self.share).min(self.window.limit) };
        let admitted = if self.used(now) > self.share { self.counting(now) } else { Vec::new() };
        LeaseAsk {
            record,
            sequence: self.sequence,
            window: self.window,
            validity: Duration::from_nanos(self.times.validity),
            held: self.share,
            need,
            want,
            admitted,
            charge: if need == 0 { waiting } else { 0 },
        }
    }

    /// What to tell the ledger when the share is given back for good.
    pub(super) fn give_back(&mut self, record: String, now: u64) -> LeaseAsk {
        self.share = 0;
        LeaseAsk { need: 0, want: 0, charge: 0, ..self.ask(record, 0, now) }
    }

    /// Applies the answer to an ask that was sent at `sent`.
    pub(super) fn apply(&mut self, ask: &LeaseAsk, grant: &LeaseGrant, sent: u64, now: u64) {
        if ask.sequence != self.sequence {
            return;
        }
        self.share = grant.share;
        self.valid_until = sent.saturating_add(self.times.usable());
        // What the ledger wants back counts until it is told that it is not used any more.
        self.renew_at = if grant.share < ask.held { now } else { sent.saturating_add(self.times.validity / 2) };
        let is_unmet = grant.share < ask.need || grant.charged < ask.charge;
        // Zero if not the limit refuses more, but what others need of it.
        let retry_after = match nanoseconds(grant.retry_after) {
            0 => self.times.review,
            wait => wait,
        };
        self.retry_at = now.saturating_add(retry_after);
        self.ask_after = if is_unmet { now.saturating_add(self.times.review.min(retry_after)) } else { 0 };
        let has_grown = grant.share > ask.held;
        self.prefetch_after = if has_grown && !is_unmet { 0 } else { now.saturating_add(self.times.review / 2) };
    }

    /// Uses the share no more, and none that is being asked for.
    pub(super) fn forget_share(&mut self) {
        self.sequence += 1;
        self.share = 0;
    }

    /// The share that can be used.
    pub(super) fn share(&self, now: u64) -> u32 {
        if self.is_valid(now) { self.share } else { 0 }
    }

    /// How often the lease is to be reviewed.
    pub(super) fn review_interval(&self) -> u64 {
        self.times.review
    }

    /// The admissions of this gateway that count.
    pub(super) fn used(&self, now: u64) -> u32 {
        u32::try_from(self.admitted.count(now)).unwrap_or(u32::MAX)
    }

    /// When the last request arrived.
    pub(super) fn last_arrival(&self) -> u64 {
        self.demand.last()
    }

    /// Whether nothing of the key counts any more.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        !self.is_valid(now) && self.used(now) == 0 && self.last_arrival().saturating_add(self.times.length) < now
    }

    fn is_valid(&self, now: u64) -> bool {
        self.share > 0 && now < self.valid_until
    }

    fn set_window(&mut self, window: Window) {
        if self.window != window {
            (self.window, self.times) = (window, LeaseTimes::of(window));
        }
    }

    /// The window by this clock.
    fn counted_window(&self) -> Window {
        Window { per: Duration::from_nanos(self.times.length), ..self.window }
    }

    fn counting(&self, now: u64) -> Vec<(u32, Duration)> {
        let counting = self.admitted.counting(now);
        counting
            .map(|(count, end)| (u32::try_from(count).unwrap_or(u32::MAX), Duration::from_nanos(end - now)))
            .collect()
    }
}

/// A need with a reserve for a while.
fn with_reserve(need: u32) -> u32 {
    need.saturating_add(need / 4).saturating_add(4)
}

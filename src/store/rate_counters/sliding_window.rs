//! The sliding-window counter of one key, in constant memory. Storing and evicting counters is left to the parent.
//!
//! Admissions are grouped into a few buckets, each with its count and the time of its *last* admission. A whole bucket
//! counts until that last one has left the window, so no window, wherever it starts, admits more than the limit.
//! Rejected: a token bucket and fixed windows admit up to twice the limit in some windows, and a full log takes memory
//! in proportion to the limit. Lock-free slots of atomics were rejected because racing requests near the limit refuse
//! each other.

use std::time::Duration;

use crate::domain::rate::{Charged, Window};

/// The number of buckets. A limit below it is counted exactly.
pub(in crate::store) const BUCKETS: usize = 16;

/// For larger limits a bucket spans at most this part of the window, which is the longest that a charge may count too
/// long. Any window touches at most fifteen buckets; the sixteenth is for requests that are charged a little late.
const BUCKETS_PER_WINDOW: u64 = BUCKETS as u64 - 2;

/// The admissions of one key. All times are nanoseconds.
#[derive(Debug)]
pub(in crate::store) struct SlidingWindow {
    /// The last admission of each bucket, oldest first, in ascending order.
    pub(super) last: [u64; BUCKETS],
    /// The admissions of each bucket: at least one, and zero in unused buckets.
    pub(super) counts: [u32; BUCKETS],
    /// The number of used buckets.
    pub(super) used: u8,
    /// Whether a bucket was dropped to free one.
    pub(super) dropped: bool,
    /// The length of the window at the last charge.
    length: u64,
    /// When the newest bucket began.
    began: u64,
    /// Earlier admissions may have been dropped.
    complete_from: u64,
}

impl SlidingWindow {
    pub(in crate::store) fn new(now: u64) -> Self {
        Self {
            last: [0; BUCKETS],
            counts: [0; BUCKETS],
            used: 0,
            dropped: false,
            length: 0,
            began: 0,
            complete_from: now,
        }
    }

    pub(in crate::store) fn charge(&mut self, window: Window, now: u64) -> Charged {
        self.charge_share(window, window.limit, now)
    }

    /// Counts a request unless more than `share` of the window's limit would count.
    pub(in crate::store) fn charge_share(&mut self, window: Window, share: u32, now: u64) -> Charged {
        let length = nanoseconds(window.per);
        if self.length != length {
            self.length = length;
            // Buckets that the old window no longer needed do not count against the new one.
            self.dropped = false;
        }
        let limit = u64::from(share);
        let count = self.count(now);
        if count >= limit || self.misses_dropped(now) {
            return Charged::Refused { retry_after: Duration::from_nanos(self.wait(count, limit, now)) };
        }
        self.add(window.limit, now);
        Charged::Admitted { left: u32::try_from(limit - count - 1).unwrap_or(u32::MAX) }
    }

    /// The admissions that count at `now`. Later ones count as well: a request that is charged late must also fit into
    /// the windows that end after it.
    pub(in crate::store) fn count(&self, now: u64) -> u64 {
        self.buckets().map(|(last, count)| if self.expires(last) > now { count } else { 0 }).sum()
    }

    /// The admissions that count at `now`, oldest first: how many, and when they stop counting.
    pub(in crate::store) fn counting(&self, now: u64) -> impl Iterator<Item = (u64, u64)> {
        self.buckets().map(|(last, count)| (count, self.expires(last))).filter(move |(_, end)| *end > now)
    }

    /// The last admission and the count of each bucket, oldest first.
    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let used = usize::from(self.used);
        self.last.iter().zip(&self.counts).take(used).map(|(&last, &count)| (last, u64::from(count)))
    }

    /// When a bucket with this last admission stops counting.
    fn expires(&self, last: u64) -> u64 {
        last.saturating_add(self.length)
    }

    /// Whether a dropped bucket would still count at `now`, which only happens to a request that is charged later than
    /// the span of a bucket.
    fn misses_dropped(&self, now: u64) -> bool {
        self.dropped && self.expires(self.complete_from - 1) > now
    }

    /// The time until enough buckets have expired for one more admission.
    fn wait(&self, count: u64, limit: u64, now: u64) -> u64 {
        if limit == 0 {
            return self.length;
        }
        let mut free_at = if self.misses_dropped(now) { self.expires(self.complete_from - 1) } else { now };
        let mut excess = (count + 1).saturating_sub(limit);
        for (last, count) in self.buckets() {
            if excess == 0 {
                break;
            }
            if self.expires(last) > now {
                excess = excess.saturating_sub(count);
                free_at = free_at.max(self.expires(last));
            }
        }
        free_at - now
    }

    /// Counts one admission, in the newest bucket or a new one.
    fn add(&mut self, limit: u32, now: u64) {
        let span = if limit < BUCKETS as u32 { 1 } else { self.length.div_ceil(BUCKETS_PER_WINDOW).max(1) };
        let used = usize::from(self.used);
        // All buckets still count, which only happens after the window has changed. The newest bucket then spans more
        // than it should, so its admissions count longer and never shorter.
        let is_full = used == BUCKETS && self.expires(self.last[0]) > now;
        // A late admission counts with the newest ones, so that the times ascend.
        let is_late = now <= self.newest();
        if used > 0 && (is_full || is_late || now.saturating_sub(self.began) < span) {
            self.counts[used - 1] = self.counts[used - 1].saturating_add(1);
            self.last[used - 1] = self.last[used - 1].max(now);
            return;
        }
        if used == BUCKETS {
            self.dropped = true;
            self.complete_from = self.complete_from.max(self.last[0] + 1);
            self.remove(0);
        }
        let newest = usize::from(self.used);
        self.last[newest] = now;
        self.counts[newest] = 1;
        self.began = now;
        self.used += 1;
    }

    /// Takes back one admission of the time `at`. A late admission may be in a later bucket than the one it is taken
    /// from; the rest then counts longer than it should and never shorter.
    pub(in crate::store) fn refund(&mut self, at: u64) {
        if at < self.complete_from {
            return;
        }
        let used = &self.last[..usize::from(self.used)];
        let Some(bucket) = used.iter().position(|&last| last >= at) else { return };
        self.counts[bucket] -= 1;
        if self.counts[bucket] == 0 {
            self.remove(bucket);
        }
    }

    fn remove(&mut self, bucket: usize) {
        self.last.copy_within(bucket + 1.., bucket);
        self.counts.copy_within(bucket + 1.., bucket);
        self.counts[BUCKETS - 1] = 0;
        self.used -= 1;
        if bucket == usize::from(self.used) {
            // The next admission must begin a new bucket and not extend the one that is now the newest.
            self.began = 0;
        }
    }

    /// The time of the last admission.
    pub(in crate::store) fn newest(&self) -> u64 {
        self.last[..usize::from(self.used)].last().copied().unwrap_or(0)
    }
}

pub(in crate::store) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

//! Which partitions of the store cannot be asked. While one cannot, requests do not wait for it: one at a time tries.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::partition::Partition;
use crate::domain::secret::random_below;

/// The pause after a failure, and a random part of the same again: the gateways of a fleet do not retry at the same moment.
const PAUSE: u64 = 250_000_000;

/// When each partition may be tried again, in nanoseconds; 0 while it answers.
pub(super) struct Outages([AtomicU64; Partition::COUNT as usize]);

impl Default for Outages {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Partition::COUNT as usize])
    }
}

impl Outages {
    /// Whether a partition may be asked: while it answers, and by one request after each pause.
    pub(super) fn may_ask(&self, partition: Partition, now: u64) -> bool {
        let retry_at = self.of(partition);
        let at = retry_at.load(Ordering::Acquire);
        at == 0
            || now >= at && retry_at.compare_exchange(at, now + 2 * PAUSE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether a partition has failed and its pause is not over.
    pub(super) fn is_away(&self, partition: Partition, now: u64) -> bool {
        now < self.of(partition).load(Ordering::Acquire)
    }

    /// Records whether a partition has answered.
    pub(super) fn note(&self, partition: Partition, has_answered: bool, now: u64) {
        let retry_at = self.of(partition);
        if has_answered {
            // Loaded first: all requests of the partition read it.
            if retry_at.load(Ordering::Acquire) != 0 {
                retry_at.store(0, Ordering::Release);
            }
        } else {
            retry_at.store(now + PAUSE + u64::from(random_below(PAUSE as u32)), Ordering::Release);
        }
    }

    fn of(&self, partition: Partition) -> &AtomicU64 {
        &self.0[usize::from(partition.number())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_tries_a_partition_that_did_not_answer() {
        let (outages, partition) = (Outages::default(), Partition::of("a"));
        assert!(outages.may_ask(partition, 5) && !outages.is_away(partition, 5));
        outages.note(partition, false, 10);
        assert!(!outages.may_ask(partition, PAUSE / 2) && outages.is_away(partition, PAUSE / 2));
        let other = Partition::all().find(|other| *other != partition).unwrap();
        assert!(outages.may_ask(other, 10), "the others answer");
        let later = 10 + 2 * PAUSE;
        assert!(outages.may_ask(partition, later));
        assert!(!outages.may_ask(partition, later), "one at a time");
        assert!(outages.is_away(partition, later));
        assert!(outages.may_ask(partition, later + 2 * PAUSE), "the first one came to nothing");
        outages.note(partition, true, later);
        assert!(outages.may_ask(partition, later) && outages.may_ask(partition, later));
    }
}

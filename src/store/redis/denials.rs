//! Denials that this gateway has received, kept until their tokens end. Replication is asynchronous: a server that takes
//! over may have lost some, and gets them back from every gateway that remembers them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::clock::Timestamp;
use crate::domain::partition::Partition;
use crate::domain::session::{EndCause, SessionId};

/// How many denials of a partition are kept: 200,000 of all, some 30 MB. Beyond, those that end first are forgotten; they are
/// still in the store, and are lost only if the server that has them is.
const CAPACITY: usize = 200_000 / Partition::COUNT as usize;

/// A denial that may have to be written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RememberedDenial {
    pub(super) id: SessionId,
    pub(super) until: Timestamp,
    pub(super) cause: EndCause,
}

/// The denials that are remembered. Each partition has a lock of its own: requests take it.
pub(super) struct DenialMemory(Vec<Mutex<Denials>>);

impl Default for DenialMemory {
    fn default() -> Self {
        Self(Partition::all().map(|_| Mutex::default()).collect())
    }
}

#[derive(Default)]
struct Denials {
    by_id: HashMap<SessionId, (Timestamp, EndCause)>,
    by_end: BTreeSet<(Timestamp, SessionId)>,
}

impl DenialMemory {
    /// Remembers that a token is denied until `until`, or longer if that is known.
    pub(super) fn remember(&self, denial: RememberedDenial) {
        let RememberedDenial { id, until, cause } = denial;
        let mut denials = self.lock(Partition::of(id.as_str()));
        if let Some((known, _)) = denials.by_id.get(&id).copied() {
            if known >= until {
                return;
            }
            denials.by_end.remove(&(known, id.clone()));
        }
        denials.by_id.insert(id.clone(), (until, cause));
        denials.by_end.insert((until, id));
        if denials.by_id.len() > CAPACITY
            && let Some((_, first)) = denials.by_end.pop_first()
        {
            denials.by_id.remove(&first);
        }
    }

    /// Whether a token is denied.
    pub(super) fn contains(&self, id: &SessionId, now: Timestamp) -> bool {
        self.lock(Partition::of(id.as_str())).by_id.get(id).is_some_and(|(until, _)| *until > now)
    }

    /// The denials of a partition that are still needed.
    pub(super) fn of_partition(&self, partition: Partition, now: Timestamp) -> Vec<RememberedDenial> {
        let denials = self.lock(partition);
        let needed = denials.by_id.iter().filter(|(_, (until, _))| *until > now);
        needed.map(|(id, (until, cause))| RememberedDenial { id: id.clone(), until: *until, cause: *cause }).collect()
    }

    /// Frees the denials of tokens that have ended.
    pub(super) fn forget_expired(&self, now: Timestamp) {
        for partition in Partition::all() {
            let mut denials = self.lock(partition);
            while let Some((until, _)) = denials.by_end.first()
                && *until <= now
                && let Some((_, id)) = denials.by_end.pop_first()
            {
                denials.by_id.remove(&id);
            }
        }
    }

    fn lock(&self, partition: Partition) -> MutexGuard<'_, Denials> {
        // There is one for each partition.
        self.0[usize::from(partition.number())].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(number: usize, until: i64) -> RememberedDenial {
        let id = SessionId::new(format!("s{number}"));
        RememberedDenial { id, until: Timestamp::from_seconds(until), cause: EndCause::Logout }
    }

    #[test]
    fn a_denial_is_remembered_until_its_token_ends() {
        let (memory, now) = (DenialMemory::default(), Timestamp::from_seconds(100));
        memory.remember(denial(1, 200));
        memory.remember(denial(1, 150));
        memory.remember(denial(2, 120));
        assert!(memory.contains(&SessionId::new("s1"), Timestamp::from_seconds(199)));
        assert!(!memory.contains(&SessionId::new("s1"), Timestamp::from_seconds(200)));
        assert!(!memory.contains(&SessionId::new("s3"), now));
        let [first, second] = ["s1", "s2"].map(Partition::of);
        assert_ne!(first, second, "for this test");
        assert_eq!(memory.of_partition(first, Timestamp::from_seconds(130)), [denial(1, 200)]);
        assert_eq!(memory.of_partition(second, now), [denial(2, 120)]);
        memory.forget_expired(Timestamp::from_seconds(130));
        assert!(memory.of_partition(second, now).is_empty());
        assert_eq!(memory.lock(first).by_end.len(), 1);
    }

    #[test]
    fn those_that_end_first_make_room() {
        let memory = DenialMemory::default();
        let of_one = |number: &usize| Partition::of(&format!("s{number}")) == Partition::of("s1");
        let numbers: Vec<usize> = (0..).filter(of_one).take(CAPACITY + 1).collect();
        for number in &numbers {
            memory.remember(denial(*number, 1000 + i64::try_from(*number).expect("small")));
        }
        let kept = |number: usize| memory.contains(&SessionId::new(format!("s{number}")), Timestamp::from_seconds(0));
        assert_eq!(memory.lock(Partition::of("s1")).by_id.len(), CAPACITY);
        assert!(!kept(numbers[0]) && kept(numbers[1]));
    }
}

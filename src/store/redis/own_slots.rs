//! The slots of this gateway in one partition, and the changes that are not written yet. They are bounded by the open
//! WebSockets: see [`MAX_FREES`].

use std::collections::{HashMap, HashSet};

use crate::store::socket_slots::SocketSlot;

/// About how many slots may wait to be freed. Beyond that, the gateway takes another name in the partition: the slots of
/// the old one soon stop counting, like those of a gateway that died, and need not be remembered.
const MAX_FREES: usize = 2000;

/// A change that is written in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotChange {
    Hold,
    Free,
}

/// The name of this gateway in a partition: its id and how often it took another name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SlotName(u64);

impl SlotName {
    pub(super) fn gateway(self, id: &str) -> String {
        format!("{id}.{}", self.0)
    }

    pub(super) fn member(self, id: &str, slot: &SocketSlot) -> String {
        format!("{id}.{}:{}", self.0, slot.number)
    }
}

/// The slots of this gateway in one partition.
#[derive(Debug, Default)]
pub(super) struct OwnSlots {
    name: SlotName,
    held: HashSet<SocketSlot>,
    /// The last change of each slot that has one.
    unwritten: HashMap<SocketSlot, SlotChange>,
}

impl OwnSlots {
    pub(super) fn name(&self) -> SlotName {
        self.name
    }

    /// Whether a WebSocket has a slot.
    pub(super) fn has_slots(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether there are changes that are not written.
    pub(super) fn has_changes(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Whether every slot is written.
    pub(super) fn is_written(&self) -> bool {
        !self.unwritten.values().any(|change| *change == SlotChange::Hold)
    }

    pub(super) fn change(&mut self, slot: SocketSlot, change: SlotChange) {
        match change {
            SlotChange::Hold => self.held.insert(slot.clone()),
            SlotChange::Free => self.held.remove(&slot),
        };
        self.unwritten.insert(slot, change);
        if self.unwritten.len() > self.held.len() + MAX_FREES {
            self.name.0 += 1;
            self.unwritten.clear();
            self.write_all_again();
        }
    }

    /// Notes that the server has given this gateway a slot, under this name.
    pub(super) fn note_taken(&mut self, slot: SocketSlot, name: SlotName) {
        self.held.insert(slot.clone());
        if name != self.name {
            self.unwritten.insert(slot, SlotChange::Hold);
        }
    }

    /// Has the slots written again, because the server does not have them.
    pub(super) fn write_all_again(&mut self) {
        self.unwritten.extend(self.held.iter().map(|slot| (slot.clone(), SlotChange::Hold)));
    }

    /// Some of the changes that are not written.
    pub(super) fn unwritten(&self, most: usize) -> impl Iterator<Item = (SlotName, SocketSlot, SlotChange)> {
        self.unwritten.iter().take(most).map(|(slot, change)| (self.name, slot.clone(), *change))
    }

    /// Notes that a change is written. A later one of the same slot still waits.
    pub(super) fn note_written(&mut self, name: SlotName, slot: &SocketSlot, change: SlotChange) {
        if name == self.name && self.unwritten.get(slot) == Some(&change) {
            self.unwritten.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::employee::{CorpId, EmployeeId};

    fn slot(number: u64) -> SocketSlot {
        SocketSlot::new(&(CorpId::new("wwdemo"), EmployeeId::new("u1001")), "a rule", number)
    }

    #[test]
    fn later_change_of_a_slot_replaces_the_one_before() {
        let mut own = OwnSlots::default();
        own.change(slot(1), SlotChange::Hold);
        let written: Vec<_> = own.unwritten(10).collect();
        own.change(slot(1), SlotChange::Free);
        assert_eq!(own.unwritten(10).collect::<Vec<_>>(), [(SlotName(0), slot(1), SlotChange::Free)]);
        for (name, slot, change) in written {
            own.note_written(name, &slot, change);
        }
        assert_eq!(own.unwritten(10).count(), 1, "what was written is not the last change");
        own.note_written(SlotName(0), &slot(1), SlotChange::Free);
        assert!(!own.has_slots() && !own.has_changes());
    }

    #[test]
    fn unwritten_changes_are_bounded_by_the_open_websockets() {
        let mut own = OwnSlots::default();
        own.change(slot(0), SlotChange::Hold);
        let (first, mut most) = (own.name(), 0);
        for number in 1..100_000 {
            own.change(slot(number), SlotChange::Hold);
            own.change(slot(number), SlotChange::Free);
            most = most.max(own.unwritten.len());
        }
        assert!(most <= MAX_FREES + 2, "{most}");
        assert_ne!(own.name(), first, "the slots of the old name stop counting");
        assert!(own.unwritten(usize::MAX).any(|one| one == (own.name(), slot(0), SlotChange::Hold)), "an open one");
        own.note_taken(slot(7), first);
        assert!(own.unwritten(usize::MAX).any(|one| one == (own.name(), slot(7), SlotChange::Hold)), "taken meanwhile");
    }
}

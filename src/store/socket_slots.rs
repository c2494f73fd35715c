//! The open WebSockets of each employee under each rule, counted over all gateways, for `max_per_employee`.

use std::fmt;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::secret::Digest;

/// The place of one WebSocket among those that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SocketSlot {
    /// The digest of the employee and the rule.
    pub group: Digest,
    /// Identifies the WebSocket within its gateway.
    pub number: u64,
}

impl SocketSlot {
    /// The slot of an employee's WebSocket under a rule.
    pub fn new((corp_id, employee_id): &(CorpId, EmployeeId), rule: &str, number: u64) -> Self {
        Self { group: Digest::of(&[corp_id.as_str(), employee_id.as_str(), rule]), number }
    }
}

/// Whether a slot was free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotOutcome {
    /// The WebSocket has its slot, until it is freed.
    Taken,
    /// As many are open as the rule allows.
    Exhausted,
}

/// Slots of open WebSockets. The slots of a gateway that died are freed after a while.
#[async_trait]
pub trait SocketSlots: fmt::Debug + Send + Sync {
    /// Takes a slot, unless `most` of its group are taken on all gateways together. One atomic step. After an error the
    /// slot may be taken: the caller frees it.
    async fn take(&self, slot: &SocketSlot, most: usize) -> Result<SlotOutcome, StoreError>;

    /// Takes a slot of a WebSocket that is open already, however many are taken. Returns at once.
    fn hold(&self, slot: SocketSlot);

    /// Frees a slot. Returns at once.
    fn free(&self, slot: SocketSlot);
}

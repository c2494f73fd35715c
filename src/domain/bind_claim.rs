//! The claims of a bind proof.

use serde::{Deserialize, Serialize};

use super::clock::Timestamp;
use super::employee::{CorpId, EmployeeId};

/// A member of a connected corporation who has just signed in at the platform and has no employee account yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindClaim {
    /// The member's corporation.
    pub corp_id: CorpId,
    /// The member's id there.
    pub employee_id: EmployeeId,
    /// The member's name; empty if the platform does not reveal it.
    pub name: String,
    /// The page that the member wanted to reach.
    pub home: String,
    /// Makes the proof unique, so that it binds only once.
    pub nonce: String,
    /// When the proof expires.
    pub end: Timestamp,
}

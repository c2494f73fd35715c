//! The result of a conditional write, shared by the store and the directory.

/// Whether a compare-and-set took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The change was made and is durable.
    Applied,
    /// The record was gone or had changed since it was read; nothing was written.
    Conflict,
}

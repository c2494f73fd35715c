//! What a copy says while it runs and at its end.

use serde::Serialize;

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// What is copied.
    pub label: &'static str,
    /// How many of them.
    pub done: usize,
    /// How many there are.
    pub total: usize,
}

/// How many records of a kind source and target have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordCount {
    /// The kind.
    pub kind: &'static str,
    /// At the source.
    pub source: usize,
    /// At the target.
    pub target: usize,
    /// Not copied because the target denies their tokens.
    pub ended: usize,
}

impl RecordCount {
    /// Whether records of the source are missing at the target.
    pub fn is_short(&self) -> bool {
        self.target + self.ended < self.source
    }
}

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// The counts of each kind.
    pub counts: Vec<RecordCount>,
    /// One-time-password secrets that the source cannot decrypt; they were copied as they are.
    pub undecryptable: usize,
}

impl CopyReport {
    /// The kinds of which records are missing at the target.
    pub fn missing(&self) -> Vec<&RecordCount> {
        self.counts.iter().filter(|count| count.is_short()).collect()
    }
}

/// Called while a copy goes on.
pub type ReportProgress<'a> = &'a mut (dyn FnMut(CopyProgress) + Send);

//! Where the body of an upstream's response ends.

use super::super::chunks::{ChunkValidator, InvalidChunk};

/// What is left of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseBody {
    /// So many bytes.
    Length(u64),
    /// Chunks, which the client gets as the upstream sends them.
    Chunked(ChunkValidator),
    /// Everything until the upstream closes its connection. The client gets it in chunks.
    UntilClose,
}

impl ResponseBody {
    pub(super) const COMPLETE: Self = Self::Length(0);

    pub(super) fn is_complete(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::UntilClose => false,
        }
    }

    /// Takes bytes that the upstream sent. Returns how many of them belong to the body.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<usize, InvalidChunk> {
        match self {
            Self::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= count as u64;
                Ok(count)
            }
            Self::Chunked(chunks) => chunks.validate(bytes),
            Self::UntilClose => Ok(bytes.len()),
        }
    }
}

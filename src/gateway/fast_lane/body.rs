//! Where the body of an upstream's response ends, and what of it the client gets.

use super::super::chunks::{ChunkValidator, InvalidChunk};
use super::upload::{LAST_CHUNK, write_chunk};

/// What is left of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseBody {
    /// So many bytes.
    Length(u64),
    /// Chunks. The client gets them anew, without extensions and trailers: a trailer could be an identity header.
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

    /// Takes bytes that the upstream sent, and adds what belongs to the body to what the client gets. Returns whether nothing
    /// else has come.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, InvalidChunk> {
        let count = match self {
            Self::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= count as u64;
                out.extend_from_slice(&bytes[..count]);
                count
            }
            Self::Chunked(chunks) => {
                let mut data = Vec::with_capacity(bytes.len());
                let count = chunks.decode(bytes, |piece| data.extend_from_slice(piece))?;
                write_chunk(out, &data);
                if chunks.is_done() {
                    out.extend_from_slice(LAST_CHUNK);
                }
                count
            }
            Self::UntilClose => {
                write_chunk(out, bytes);
                bytes.len()
            }
        };
        Ok(count == bytes.len())
    }
}

//! Where the header lines of a head are. Several functions visit them, and none has to look for them again.

use std::cell::RefCell;

use super::super::buffer::{Buffer, BufferElement, KeptBuffers};
use crate::domain::header_name::make_lower;

/// The header lines of a head that was parsed, as places in its bytes.
#[derive(Debug)]
pub(super) struct LinePlaces(Buffer<LinePlace>);

#[derive(Debug, Clone, Copy)]
struct LinePlace {
    name: u32,
    name_length: u32,
    value: u32,
    value_length: u32,
}

thread_local! {
    static KEPT: KeptBuffers<LinePlace> = const { RefCell::new(Vec::new()) };
}

impl BufferElement for LinePlace {
    const CAPACITY: usize = 32;

    fn with_kept<R>(act: impl FnOnce(&KeptBuffers<Self>) -> R) -> Option<R> {
        KEPT.try_with(act).ok()
    }
}

impl LinePlaces {
    /// The lines of a head, which the parser has found in `bytes`.
    pub(super) fn of(bytes: &[u8], parsed: &[httparse::Header<'_>]) -> Self {
        let mut lines = Buffer::<LinePlace>::new();
        // A head is far shorter than 4 GiB.
        let place = |part: &[u8]| (part.as_ptr() as usize - bytes.as_ptr() as usize) as u32;
        for header in parsed {
            lines.push(LinePlace {
                name: place(header.name.as_bytes()),
                name_length: header.name.len() as u32,
                value: place(header.value),
                value_length: header.value.len() as u32,
            });
        }
        Self(lines)
    }

    /// Visits the lines, which are in `bytes`.
    pub(super) fn each<'a>(&self, bytes: &'a [u8], visit: &mut dyn FnMut(&'a [u8], &'a [u8])) {
        for line in self.0.iter() {
            let [name, value] = [(line.name, line.name_length), (line.value, line.value_length)]
                .map(|(start, length)| &bytes[start as usize..start as usize + length as usize]);
            visit(name, value);
        }
    }

    /// Turns the names into lower case, in which the pipeline and the upstream get them.
    pub(super) fn lower_names(&self, bytes: &mut [u8]) {
        for line in self.0.iter() {
            make_lower(&mut bytes[line.name as usize..][..line.name_length as usize]);
        }
    }
}

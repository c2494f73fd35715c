//! Buffers of the fast lane. A buffer that is dropped is kept by its thread for the next request: one of a few kilobytes costs the
//! allocator several times as much as a small object.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The capacity of a new buffer: a head and a small body.
pub(super) const CAPACITY: usize = 4 * 1024;

/// A buffer that has grown beyond this is freed.
const LARGEST: usize = 16 * 1024;

/// How many buffers a thread keeps: as many as the requests that it is likely to have under way need.
const MOST: usize = 64;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that belongs to its thread again once it is dropped. It holds memory only from its first byte on.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty buffer with room for at least [`CAPACITY`] bytes.
    pub(super) fn new() -> Self {
        let kept = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        Self(kept.unwrap_or_else(|| Vec::with_capacity(CAPACITY)))
    }

    /// Adds bytes.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.0.capacity() == 0 && !bytes.is_empty() {
            *self = Self::new();
        }
        self.0.extend_from_slice(bytes);
    }

    /// Removes and returns the bytes from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut rest = Self::default();
        rest.extend(&self.0[at..]);
        self.0.truncate(at);
        rest
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        if (CAPACITY..=LARGEST).contains(&bytes.capacity()) {
            bytes.clear();
            // Fails while the thread ends.
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < MOST {
                    free.push(bytes);
                }
            });
        }
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests;

//! Buffers of connections and of the fast lane. The thread that drops a buffer keeps it for its next request, unless it keeps enough or the
//! buffer has grown large: one of a few kilobytes costs the allocator several times as much as a small object.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The capacity of a new buffer of bytes: a head and a small body.
pub(super) const CAPACITY: usize = 4 * 1024;

/// How many buffers of each kind a thread keeps: enough for the requests that it is likely to have under way. Each request needs two
/// buffers of bytes while its upstream works.
const MOST: usize = 128;

/// The buffers that a thread keeps.
pub(super) type KeptBuffers<T> = RefCell<Vec<Vec<T>>>;

/// What buffers are made of.
pub(super) trait BufferElement: Copy + 'static {
    /// The capacity of a new buffer.
    const CAPACITY: usize;
    /// A buffer that has grown beyond this is freed.
    const LARGEST: usize = 4 * Self::CAPACITY;

    /// Calls `act` with the buffers that this thread keeps. `None` while the thread ends.
    fn with_kept<R>(act: impl FnOnce(&KeptBuffers<Self>) -> R) -> Option<R>;
}

thread_local! {
    static KEPT: KeptBuffers<u8> = const { RefCell::new(Vec::new()) };
}

impl BufferElement for u8 {
    const CAPACITY: usize = CAPACITY;

    fn with_kept<R>(act: impl FnOnce(&KeptBuffers<Self>) -> R) -> Option<R> {
        KEPT.try_with(act).ok()
    }
}

/// A buffer that the thread that drops it may keep. One made by `default` holds no memory before its first element.
#[derive(Debug)]
pub(super) struct Buffer<T: BufferElement = u8>(Vec<T>);

impl<T: BufferElement> Default for Buffer<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: BufferElement> Buffer<T> {
    /// An empty buffer with room for at least [`BufferElement::CAPACITY`].
    pub(super) fn new() -> Self {
        let kept = T::with_kept(|kept| kept.borrow_mut().pop()).flatten();
        Self(kept.unwrap_or_else(|| Vec::with_capacity(T::CAPACITY)))
    }

    /// Adds elements.
    pub(super) fn extend(&mut self, elements: &[T]) {
        if self.0.capacity() == 0 && !elements.is_empty() {
            *self = Self::new();
        }
        self.0.extend_from_slice(elements);
    }

    /// Makes room for at least one more element.
    pub(super) fn make_room(&mut self) {
        if self.0.capacity() == 0 {
            *self = Self::new();
        } else if self.0.len() == self.0.capacity() {
            self.0.reserve(T::CAPACITY);
        }
    }

    /// Removes and returns the elements from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut rest = Self::default();
        rest.extend(&self.0[at..]);
        self.0.truncate(at);
        rest
    }
}

impl<T: BufferElement> Drop for Buffer<T> {
    fn drop(&mut self) {
        let mut elements = std::mem::take(&mut self.0);
        if (T::CAPACITY..=T::LARGEST).contains(&elements.capacity()) {
            elements.clear();
            T::with_kept(|kept| {
                let mut kept = kept.borrow_mut();
                if kept.len() < MOST {
                    kept.push(elements);
                }
            });
        }
    }
}

impl<T: BufferElement> Deref for Buffer<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: BufferElement> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests;

use super::*;

#[test]
fn a_dropped_buffer_is_used_again_without_its_bytes() {
    let mut first = Buffer::<u8>::new();
    first.extend(b"secret");
    let address = first.as_ptr();
    drop(first);
    let second = Buffer::<u8>::new();
    assert_eq!((second.as_ptr(), second.len()), (address, 0));
}

#[test]
fn an_empty_buffer_holds_no_memory() {
    let mut buffer = Buffer::default();
    buffer.extend(b"");
    assert_eq!(buffer.capacity(), 0);
    buffer.extend(b"a");
    assert!(buffer.capacity() >= CAPACITY);
    assert_eq!(buffer.split_off(1).capacity(), 0);
}

#[test]
fn a_large_buffer_is_freed() {
    KEPT.with(|kept| kept.borrow_mut().clear());
    let mut buffer = Buffer::new();
    buffer.extend(&[0; u8::LARGEST + 1]);
    drop(buffer);
    assert!(KEPT.with(|kept| kept.borrow().is_empty()));
}

#[test]
fn a_thread_keeps_a_bounded_number_of_buffers() {
    drop((0..2 * MOST).map(|_| Buffer::<u8>::new()).collect::<Vec<_>>());
    assert_eq!(KEPT.with(|kept| kept.borrow().len()), MOST);
}

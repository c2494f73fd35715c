#![no_main]
//! The frame tracker: its state does not depend on how the bytes are split.

use deskgate::sockets::frame::FrameTracker;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut whole = FrameTracker::default();
    whole.track(bytes);
    let mut pieces = FrameTracker::default();
    for byte in bytes {
        pieces.track(std::slice::from_ref(byte));
    }
    assert_eq!(whole, pieces);
});

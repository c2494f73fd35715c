use proptest::prelude::*;

use super::*;

/// A frame with the shortest or a longer length field, masked or not.
fn frame(opcode: u8, payload: usize, masked: bool, field: usize) -> Vec<u8> {
    let mask = if masked { 0x80 } else { 0 };
    let mut bytes = vec![0x80 | opcode];
    match (field, payload) {
        (0, 0..=125) => bytes.push(mask | u8::try_from(payload).expect("short")),
        (0 | 1, 0..=65_535) => {
            bytes.push(mask | 126);
            bytes.extend_from_slice(&u16::try_from(payload).expect("medium").to_be_bytes());
        }
        _ => {
            bytes.push(mask | 127);
            bytes.extend_from_slice(&(payload as u64).to_be_bytes());
        }
    }
    if masked {
        bytes.extend_from_slice(&[1, 2, 3, 4]);
    }
    bytes.resize(bytes.len() + payload, 0x88);
    bytes
}

#[test]
fn frame_boundaries_are_found_for_every_length_field() {
    for (payload, field) in [(0, 0), (1, 0), (125, 0), (126, 1), (65_535, 1), (65_536, 2), (3, 1), (3, 2)] {
        for masked in [false, true] {
            let bytes = frame(0x2, payload, masked, field);
            let mut tracker = FrameTracker::default();
            for (offset, byte) in bytes.iter().enumerate() {
                assert_eq!(tracker.at_boundary(), offset == 0, "{payload} {masked} at {offset}");
                tracker.track(&[*byte]);
            }
            assert!(tracker.at_boundary() && !tracker.has_closed(), "{payload} {masked}");
        }
    }
}

#[test]
fn a_close_frame_is_detected_and_a_payload_that_looks_like_one_is_not() {
    let mut tracker = FrameTracker::default();
    tracker.track(&frame(0x2, 40, false, 0));
    assert!(!tracker.has_closed());
    tracker.track(&close_frame(4401, "session ended"));
    assert!(tracker.has_closed() && tracker.at_boundary());
}

#[test]
fn close_frames_carry_code_and_reason() {
    assert_eq!(close_frame(4401, "x"), [0x88, 3, 0x11, 0x31, b'x']);
    assert_eq!(masked_close_frame(1001, ""), [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9]);
    assert_eq!(close_frame(4401, &"x".repeat(500)).len(), 127);
}

#[test]
fn track_to_boundary_stops_at_the_boundary() {
    let two = [frame(0x1, 10, false, 0), frame(0x1, 5, false, 0)].concat();
    let mut tracker = FrameTracker::default();
    tracker.track(&two[..4]);
    assert_eq!(tracker.track_to_boundary(&two[4..]), 8);
    assert!(tracker.at_boundary());
    assert_eq!(tracker.track_to_boundary(&two[12..]), 0, "already at a boundary");
}

#[test]
fn the_code_of_the_first_close_frame_is_read_however_it_is_cut() {
    let masked = [0x88, 0x84, 1, 2, 3, 4, 0x03 ^ 1, 0xe9 ^ 2, b'x' ^ 3, b'y' ^ 4].to_vec();
    let table: [(&str, Vec<u8>, Option<u16>); 7] = [
        ("unmasked", close_frame(4401, "session ended"), Some(4401)),
        ("masked", masked, Some(1001)),
        ("without a code", vec![0x88, 0], Some(1005)),
        ("half a code", vec![0x88, 1, 3], Some(1005)),
        ("a frame after one without a code", vec![0x88, 0, 0x81, 2, b'h', b'i'], Some(1005)),
        ("two of them", [close_frame(1000, ""), close_frame(1001, "")].concat(), Some(1000)),
        ("none", vec![0x81, 2, b'h', b'i'], None),
    ];
    for (case, bytes, expected) in table {
        for cut in 0..=bytes.len() {
            let mut tracker = FrameTracker::default();
            tracker.track(&bytes[..cut]);
            tracker.track(&bytes[cut..]);
            assert_eq!(tracker.close_code(), expected, "{case}, cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn frame_boundaries_do_not_depend_on_how_reads_are_cut(
        frames in proptest::collection::vec((0_u8..11, 0_usize..700, any::<bool>(), 0_usize..3), 1..8),
        cuts in proptest::collection::vec(1_usize..97, 1..64),
    ) {
        let built: Vec<Vec<u8>> = frames.iter().map(|(op, size, masked, field)| frame(*op, *size, *masked, *field)).collect();
        let bytes = built.concat();
        let mut ends: Vec<usize> = built.iter().scan(0, |sum, one| { *sum += one.len(); Some(*sum) }).collect();
        ends.insert(0, 0);
        let mut tracker = FrameTracker::default();
        let (mut at, mut cut) = (0, cuts.iter().cycle());
        while at < bytes.len() {
            prop_assert_eq!(tracker.at_boundary(), ends.contains(&at));
            let end = bytes.len().min(at + cut.next().expect("the cycle is endless"));
            tracker.track(&bytes[at..end]);
            at = end;
        }
        prop_assert!(tracker.at_boundary());
        prop_assert_eq!(tracker.has_closed(), frames.iter().any(|(op, ..)| *op == 8));
    }

    #[test]
    fn arbitrary_bytes_never_panic_or_stall(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut tracker = FrameTracker::default();
        tracker.track(&bytes);
        let mut again = FrameTracker::default();
        let mut at = 0;
        while at < bytes.len() {
            let consumed = again.track_to_boundary(&bytes[at..]);
            if consumed == 0 { again.track(&bytes[at..=at]); at += 1; } else { at += consumed; }
        }
        prop_assert_eq!(tracker, again);
    }
}

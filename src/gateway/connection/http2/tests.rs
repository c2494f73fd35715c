use std::time::Duration;

use super::*;
use crate::config::LimitsConfig;
use crate::metrics::Metrics;

const END_STREAM: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn rate() -> Arc<BodyLimits> {
    BodyLimits::new(&LimitsConfig::default(), &Metrics::new().unwrap()).unwrap()
}

/// A connection behind its preface, with one request body on stream 1.
fn uploading() -> Http2Frames {
    let mut frames = Http2Frames::new(Some(rate()));
    frames.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    frames.receive(&frame(SETTINGS, 0, 0, b"")).unwrap();
    frames.receive(&frame(kind::HEADERS, 0, 1, b"head")).unwrap();
    frames
}

/// The streams that are too slow after this many seconds without a byte.
fn slow_after(frames: &mut Http2Frames, seconds: u64) -> Vec<u32> {
    let now = Instant::now();
    frames.slow_streams(&rate(), now);
    frames.slow_streams(&rate(), now + Duration::from_secs(seconds)).map(|(_, slow)| slow).unwrap_or_default()
}

#[test]
fn frames_are_found_however_the_bytes_are_split() {
    let bytes = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[0; 6]),
        frame(kind::HEADERS, 0, 1, b"head"),
        frame(kind::DATA, 0, 1, b"0123456789"),
        frame(kind::HEADERS, END_STREAM, 3, b""),
    ]
    .concat();
    for size in 1..bytes.len() {
        let mut frames = Http2Frames::new(Some(rate()));
        bytes.chunks(size).for_each(|piece| frames.receive(piece).unwrap());
        assert_eq!(frames.last_stream, 3, "pieces of {size}");
        assert_eq!(frames.uploads.keys().collect::<Vec<_>>(), [&1], "pieces of {size}");
        assert_eq!(frames.window, INITIAL_WINDOW - 10, "pieces of {size}");
        assert!(frames.received.is_between_frames(), "pieces of {size}");
    }
}

#[test]
fn request_body_ends_with_its_stream() {
    for (case, received, sent) in [
        ("an empty last frame", frame(kind::DATA, END_STREAM, 1, b""), vec![]),
        ("a last frame", frame(kind::DATA, END_STREAM, 1, b"end"), vec![]),
        ("trailers", frame(kind::HEADERS, END_STREAM, 1, b"tail"), vec![]),
        ("a reset of the client", resets(&[1]), vec![]),
        ("a reset of the gateway", vec![], resets(&[1])),
    ] {
        let mut frames = uploading();
        frames.receive(&received).unwrap();
        frames.send(&sent);
        assert!(frames.uploads.is_empty(), "{case}");
    }
    let mut unfinished = uploading();
    let last = frame(kind::DATA, END_STREAM, 1, b"end");
    unfinished.receive(&last[..last.len() - 1]).unwrap();
    assert_eq!(unfinished.uploads.len(), 1, "the last frame is incomplete");
}

#[test]
fn client_that_may_send_is_too_slow_after_the_grace() {
    let mut frames = uploading();
    assert!(slow_after(&mut frames, 29).is_empty());
    assert_eq!(slow_after(&mut frames, 31), [1]);
}

#[test]
fn client_without_a_window_is_not_too_slow() {
    let mut frames = uploading();
    let data = frame(kind::DATA, 0, 1, &[0; 16_384]);
    (0..3).for_each(|_| frames.receive(&data).unwrap());
    assert!(slow_after(&mut frames, 3600).is_empty(), "the upstream does not take the body");
    frames.send(&frame(kind::WINDOW_UPDATE, 0, 0, &32_768_u32.to_be_bytes()));
    assert!(slow_after(&mut frames, 3600).is_empty(), "the window of the stream is small");
    frames.send(&frame(kind::WINDOW_UPDATE, 0, 1, &32_768_u32.to_be_bytes()));
    assert_eq!(slow_after(&mut frames, 3600), [1]);
}

#[test]
fn incomplete_frame_protects_no_stream() {
    let mut frames = uploading();
    frames.receive(&frame(kind::DATA, 0, 1, &[0; 100])[..50]).unwrap();
    assert_eq!(slow_after(&mut frames, 31), [1], "its own stream");
    let mut frames = uploading();
    frames.receive(&frame(PING, 0, 0, &[0; 8])[..12]).unwrap();
    assert!(slow_after(&mut frames, 31).is_empty(), "the frame may still end");
    assert_eq!(slow_after(&mut frames, 61), [1], "another stream");
}

#[test]
fn only_overhead_counts_against_the_budget() {
    for (case, frame, is_flood) in [
        ("pings", frame(PING, 0, 0, &[0; 8]), true),
        ("settings", frame(SETTINGS, 0, 0, b""), true),
        ("unknown frames", frame(0x42, 0, 0, b""), true),
        ("empty data", frame(kind::DATA, 0, 1, b""), true),
        ("data", frame(kind::DATA, 0, 1, b"x"), false),
        ("requests", frame(kind::HEADERS, END_STREAM, 1, b"head"), false),
    ] {
        let mut frames = uploading();
        let refused = (0..20_000).any(|_| frames.receive(&frame) == Err(FrameFlood));
        assert_eq!(refused, is_flood, "{case}");
    }
}

//! The frames of an HTTP/2 connection as they pass (RFC 9113). Counts what a client sends besides requests and bodies, and
//! holds each request body to the minimum rate. Only frame headers and window updates are parsed; validating frames is
//! left to h2.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::super::deadline::Deadline;
use super::rate::{BodyLimits, RateMeter};

mod budget;

mod scanner;

use budget::FrameBudget;
use scanner::{FrameEvent, FrameHeader, FrameScanner, kind};

/// The length of the connection preface.
const PREFACE: usize = 24;

/// The window of each stream and of the connection before the first update; h2's default, which the gateway keeps.
const INITIAL_WINDOW: i64 = 65_535;

/// A client with a smaller window waits for the gateway: h2 enlarges the window before it becomes as small, unless the
/// upstream does not take what it has.
const USABLE_WINDOW: i64 = 16_384;

/// More unfinished request bodies than h2 admits streams.
const MAX_UPLOADS: usize = 1_000;

/// Error codes (RFC 9113, section 7).
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A client that sends too many frames besides requests and bodies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FrameFlood;

/// Whose request body is too slow.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlowUpload {
    Streams(Vec<u32>),
    /// The slow body ends in the middle of a frame, so no other stream can go on.
    Connection,
}

/// The second grace of a slow upload, also without a minimum rate.
const LONGEST_SECOND_GRACE: Duration = Duration::from_secs(30);

/// What has passed on a connection.
pub(super) struct Http2Frames {
    preface_left: usize,
    received: FrameScanner,
    sent: FrameScanner,
    budget: FrameBudget,
    /// How much the client may send.
    window: i64,
    /// The highest stream that the client opened.
    last_stream: u32,
    uploads: BTreeMap<u32, Upload>,
    /// None without limits on bodies.
    limits: Option<Arc<BodyLimits>>,
    deadline: Deadline,
}

/// An unfinished request body.
struct Upload {
    /// How much the client may send on the stream.
    window: i64,
    meter: RateMeter,
    /// The response has begun and goes on: the client may be waiting for it, so its silence does not count.
    is_answered: bool,
}

impl Http2Frames {
    pub(super) fn new(limits: Option<Arc<BodyLimits>>) -> Self {
        Self {
            preface_left: PREFACE,
            received: FrameScanner::default(),
            sent: FrameScanner::default(),
            budget: FrameBudget::new(),
            window: INITIAL_WINDOW,
            last_stream: 0,
            uploads: BTreeMap::new(),
            limits,
            deadline: Deadline::none(),
        }
    }

    pub(super) fn is_in_preface(&self) -> bool {
        self.preface_left > 0
    }

    /// Whether everything sent so far ends with a frame.
    pub(super) fn has_sent_whole_frames(&self) -> bool {
        self.sent.is_between_frames()
    }

    /// Takes bytes that the client sent.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), FrameFlood> {
        let preface = self.preface_left.min(bytes.len());
        self.preface_left -= preface;
        let mut bytes = &bytes[preface..];
        while let Some((event, rest)) = self.received.next(bytes) {
            bytes = rest;
            self.on_received(event)?;
        }
        Ok(())
    }

    fn on_received(&mut self, event: FrameEvent) -> Result<(), FrameFlood> {
        match event {
            FrameEvent::Begin(frame) => {
                if frame.is_overhead() {
                    self.budget.spend()?;
                }
                match frame.kind {
                    kind::HEADERS if frame.stream > self.last_stream => self.open(&frame)?,
                    kind::HEADERS if frame.ends_stream() => self.close(frame.stream),
                    kind::RST_STREAM => self.close(frame.stream),
                    kind::DATA => self.change_window(&frame, -(frame.length as i64)),
                    _ => {}
                }
            }
            FrameEvent::Payload { frame, bytes } if frame.kind == kind::DATA => {
                if let (Some(upload), Some(limits)) = (self.uploads.get_mut(&frame.stream), &self.limits) {
                    upload.meter.record(bytes, limits);
                }
            }
            FrameEvent::End(frame) if frame.kind == kind::DATA && frame.ends_stream() => self.close(frame.stream),
            FrameEvent::Payload { .. } | FrameEvent::End(_) => {}
        }
        Ok(())
    }

    /// Takes bytes that h2 sent.
    pub(super) fn send(&mut self, mut bytes: &[u8]) {
        while let Some((event, rest)) = self.sent.next(bytes) {
            bytes = rest;
            match event {
                FrameEvent::Begin(frame) if frame.kind == kind::DATA => {
                    self.budget.earn(frame.length);
                    self.note_answer(&frame);
                }
                // Pingora sends no interim responses over HTTP/2.
                FrameEvent::Begin(frame) if frame.kind == kind::HEADERS => self.note_answer(&frame),
                FrameEvent::Begin(frame) if frame.kind == kind::RST_STREAM => self.close(frame.stream),
                FrameEvent::End(frame) if frame.kind == kind::WINDOW_UPDATE => {
                    self.change_window(&frame, i64::from(self.sent.increment()));
                }
                _ => {}
            }
        }
    }

    /// Notes a header or a piece of a response.
    fn note_answer(&mut self, frame: &FrameHeader) {
        if let Some(upload) = self.uploads.get_mut(&frame.stream) {
            upload.is_answered = !frame.ends_stream();
        }
    }

    fn open(&mut self, frame: &FrameHeader) -> Result<(), FrameFlood> {
        self.last_stream = frame.stream;
        let Some(limits) = self.limits.as_deref().filter(|_| !frame.ends_stream()) else { return Ok(()) };
        if self.uploads.len() >= MAX_UPLOADS {
            return Err(FrameFlood);
        }
        let upload = Upload { window: INITIAL_WINDOW, meter: RateMeter::of_upload(limits), is_answered: false };
        self.uploads.insert(frame.stream, upload);
        Ok(())
    }

    fn close(&mut self, stream: u32) {
        self.uploads.remove(&stream);
    }

    /// Changes the windows that a DATA or WINDOW_UPDATE frame is about.
    fn change_window(&mut self, frame: &FrameHeader, change: i64) {
        if frame.kind == kind::DATA || frame.stream == 0 {
            self.window += change;
        }
        if let Some(upload) = self.uploads.get_mut(&frame.stream) {
            upload.window += change;
        }
    }

    /// Ready once a client that may send has sent too little. To be polled while a read is pending.
    pub(super) fn poll_slow_upload(&mut self, cx: &mut Context<'_>) -> Poll<SlowUpload> {
        let Some(limits) = self.limits.clone().filter(|_| !self.uploads.is_empty()) else { return Poll::Pending };
        let Some((due, _)) = self.slow_streams(&limits, Instant::now()) else { return Poll::Pending };
        self.deadline.set_at(due);
        ready!(self.deadline.poll(cx, limits.grace));
        let slow = self.slow_streams(&limits, Instant::now()).map(|(_, slow)| slow).unwrap_or_default();
        if slow.is_empty() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let is_between_frames = self.received.is_between_frames();
        // Within a frame, the connection ends once for all of them.
        for stream in &slow[..if is_between_frames { slow.len() } else { 1 }] {
            if let Some(upload) = self.uploads.remove(stream) {
                limits.count_ended(&upload.meter);
            }
        }
        Poll::Ready(if is_between_frames { SlowUpload::Streams(slow) } else { SlowUpload::Connection })
    }

    /// When the next upload will have been too slow, and those that have been.
    fn slow_streams(&mut self, limits: &BodyLimits, now: Instant) -> Option<(Instant, Vec<u32>)> {
        let partial = self.received.partial_stream();
        let can_act = self.received.is_between_frames();
        let mut slow = Vec::new();
        let mut next: Option<Instant> = None;
        for (stream, upload) in &mut self.uploads {
            let is_partial = partial == Some(*stream);
            if !is_partial && (upload.is_answered || self.window.min(upload.window) < USABLE_WINDOW) {
                upload.meter.pause();
                continue;
            }
            let mut due = upload.meter.wait(now);
            if !can_act && !is_partial {
                // Another stream's frame must end before this one can be reset; a second grace bounds the wait.
                due += limits.grace.min(LONGEST_SECOND_GRACE);
            }
            if due <= now {
                slow.push(*stream);
            }
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        next.map(|next| (next, slow))
    }

    /// The GOAWAY frame after a flood.
    pub(super) fn go_away(&self) -> Vec<u8> {
        let mut frame = frame_bytes(kind::GO_AWAY, 0, 8);
        frame.extend_from_slice(&self.last_stream.to_be_bytes());
        frame.extend_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
        frame
    }
}

/// RST_STREAM frames for these streams.
pub(super) fn resets(streams: &[u32]) -> Vec<u8> {
    let reset = |stream: &u32| [frame_bytes(kind::RST_STREAM, *stream, 4), CANCEL.to_be_bytes().to_vec()].concat();
    streams.iter().flat_map(reset).collect()
}

/// A frame header without flags.
fn frame_bytes(kind: u8, stream: u32, length: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, length, kind, 0];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;

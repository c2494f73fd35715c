//! Traces: a span for each sampled request, and one for each attempt to reach an upstream and each call of the platform that
//! it makes, exported by OTLP. Which requests are sampled is decided here; the trace context of the wire is left to `pipeline::trace`.
//!
//! Nothing of this runs without `traces.endpoint`. A request never waits for the collector: its record goes into a bounded
//! queue, and what does not fit is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::domain::clock::Clock;
use crate::domain::secret::random_bytes;
use crate::metrics::TraceMetrics;

mod export;

mod otlp;

mod record;

pub use export::{SpanExporter, TraceTarget};
pub use record::{AttemptFailure, RequestTrace, TraceEnd, TraceSubject};
use record::{TraceIds, TraceRecord};

/// How many requests wait to be exported.
const QUEUE: usize = 2048;

/// What the exporter gets.
enum QueueItem {
    Finished(Box<TraceRecord>),
    /// Export all that came before, and say so.
    Flush(oneshot::Sender<()>),
}

/// The span that a request names as its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParentSpan {
    /// The trace.
    pub trace: u128,
    /// The caller's span.
    pub span: u64,
    /// Whether the caller may decide about sampling; None if it may not.
    pub decision: Option<Sampling>,
}

/// Whether a request is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// It is.
    Sampled,
    /// It is not.
    NotSampled,
}

/// Decides which requests are traced, and hands their records to the exporter.
#[derive(Debug)]
pub struct Tracer {
    /// Random numbers up to this one are sampled; None: no request is.
    threshold: Option<u64>,
    seed: u64,
    count: AtomicU64,
    clock: Clock,
    queue: mpsc::Sender<QueueItem>,
    metrics: TraceMetrics,
}

impl Tracer {
    /// A tracer and the exporter of its records, which must be run.
    pub fn new(sample: f64, clock: Clock, metrics: TraceMetrics, target: TraceTarget) -> (Arc<Self>, SpanExporter) {
        let (queue, records) = mpsc::channel(QUEUE);
        // A float that is too large becomes the largest number.
        let threshold = (sample > 0.0).then_some((sample * u64::MAX as f64) as u64);
        let tracer = Self {
            threshold,
            seed: u64::from_le_bytes(random_bytes()),
            count: AtomicU64::new(0),
            clock,
            queue,
            metrics: metrics.clone(),
        };
        (Arc::new(tracer), SpanExporter::new(records, target, metrics))
    }

    /// Begins the trace of a request that arrived at `started`; None if it is not sampled. `own_trace` is its trace if it
    /// continues none.
    pub fn begin(
        self: &Arc<Self>,
        parent: Option<ParentSpan>,
        own_trace: Option<u128>,
        started: Instant,
        subject: impl FnOnce() -> TraceSubject,
    ) -> Option<Box<RequestTrace>> {
        let span = self.random();
        let sampling = parent.and_then(|parent| parent.decision).unwrap_or_else(|| self.by_ratio(span));
        if sampling == Sampling::NotSampled {
            return None;
        }
        let fresh = || u128::from(self.random()) << 64 | u128::from(self.random());
        let ids = TraceIds {
            trace: parent.map(|parent| parent.trace).or(own_trace).unwrap_or_else(fresh),
            // Zero is no id.
            span: span.max(1),
            parent: parent.map(|parent| parent.span),
        };
        let ago = u64::try_from(started.elapsed().as_nanos()).unwrap_or(0);
        let began = self.clock.unix_nanos().saturating_sub(ago);
        Some(Box::new(RequestTrace::new(self.clone(), TraceRecord::new(ids, began, started, subject()))))
    }

    fn by_ratio(&self, random: u64) -> Sampling {
        match self.threshold {
            Some(threshold) if random <= threshold => Sampling::Sampled,
            _ => Sampling::NotSampled,
        }
    }

    /// A number that no other call has returned: random enough to sample by, and for ids that must be unique.
    fn random(&self) -> u64 {
        mixed(self.seed.wrapping_add(self.count.fetch_add(1, Ordering::Relaxed).wrapping_mul(GOLDEN)))
    }

    fn send(&self, record: Box<TraceRecord>) {
        let spans = record.spans();
        if self.queue.try_send(QueueItem::Finished(record)).is_err() {
            self.metrics.queue_full.inc_by(spans);
        }
    }

    /// Waits until the collector has got, or refused, all records so far.
    pub async fn flush(&self) {
        let (done, exported) = oneshot::channel();
        if self.queue.send(QueueItem::Flush(done)).await.is_ok() {
            // The exporter drops the sender if it ends before.
            let _ = exported.await;
        }
    }
}

/// 2^64 divided by the golden ratio: its multiples spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads the bits of a number; different numbers stay different (SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests;

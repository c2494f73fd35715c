//! Sends finished records to the collector, many at once.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::record::TraceRecord;
use super::{QueueItem, otlp};
use crate::metrics::TraceMetrics;
use crate::platform::http::{HttpClient, HttpError};

/// How long records wait for others to be sent with.
const INTERVAL: Duration = Duration::from_secs(1);

/// How many requests are sent at once.
const BATCH: usize = 512;

/// How long the collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before the second and last attempt.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Where spans go, and whose they are.
#[derive(Debug)]
pub struct TraceTarget {
    url: Url,
    client: HttpClient,
    resource: Resource,
}

impl TraceTarget {
    /// The collector at this URL, which gets the spans of a service and instance.
    pub fn new(url: Url, service: &str, instance: &str) -> Result<Self, HttpError> {
        let client = HttpClient::new(&url, TIMEOUT)?;
        Ok(Self { url, client, resource: otlp::resource(service, instance) })
    }
}

/// Exports the records of a tracer.
pub struct SpanExporter {
    records: mpsc::Receiver<QueueItem>,
    target: TraceTarget,
    metrics: TraceMetrics,
    /// The collector did not take the last spans.
    is_failing: bool,
}

impl SpanExporter {
    pub(super) fn new(records: mpsc::Receiver<QueueItem>, target: TraceTarget, metrics: TraceMetrics) -> Self {
        Self { records, target, metrics, is_failing: false }
    }

    /// Exports until the tracer is gone.
    pub async fn run(mut self) {
        while let Some((batch, flush)) = self.next_batch().await {
            if !batch.is_empty() {
                self.export(&batch).await;
            }
            if let Some(done) = flush {
                // The one who waits may have given up.
                let _ = done.send(());
            }
        }
        // Other tasks that end are a failure of the gateway; this one waits to be cancelled.
        std::future::pending().await
    }

    /// Records until there are enough, an interval has passed since the first one, or all must be exported.
    async fn next_batch(&mut self) -> Option<(Vec<Box<TraceRecord>>, Option<oneshot::Sender<()>>)> {
        let mut batch = match self.records.recv().await? {
            QueueItem::Finished(record) => vec![record],
            QueueItem::Flush(done) => return Some((Vec::new(), Some(done))),
        };
        let deadline = Instant::now() + INTERVAL;
        while batch.len() < BATCH {
            match timeout_at(deadline, self.records.recv()).await {
                Ok(Some(QueueItem::Finished(record))) => batch.push(record),
                Ok(Some(QueueItem::Flush(done))) => return Some((batch, Some(done))),
                Ok(None) | Err(_) => break,
            }
        }
        Some((batch, None))
    }

    async fn export(&mut self, batch: &[Box<TraceRecord>]) {
        let spans: u64 = batch.iter().map(|record| record.spans()).sum();
        let body = otlp::message(&self.target.resource, batch).encode_to_vec();
        match self.post(body).await {
            Ok(response) => {
                // A response that is no message says nothing about rejected spans.
                let partial = ExportTraceServiceResponse::decode(response).ok().and_then(|done| done.partial_success);
                let rejected = partial.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or(0));
                self.metrics.exported.inc_by(spans.saturating_sub(rejected));
                self.metrics.rejected.inc_by(rejected.min(spans));
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector of traces takes spans again");
                }
            }
            Err(error) => {
                self.metrics.failed.inc_by(spans);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "the collector of traces does not take spans: they are dropped until it does");
                }
            }
        }
    }

    /// Posts once more if the first attempt failed, unless the collector has been failing anyway.
    async fn post(&self, body: Vec<u8>) -> Result<bytes::Bytes, HttpError> {
        const PROTOBUF: &str = "application/x-protobuf";
        let body = bytes::Bytes::from(body);
        let first = self.target.client.post_bytes(self.target.url.clone(), PROTOBUF, body.clone()).await;
        match first {
            Err(error) if error.is_temporary() && !self.is_failing => {
                tokio::time::sleep(RETRY_PAUSE).await;
                self.target.client.post_bytes(self.target.url.clone(), PROTOBUF, body).await
            }
            done => done,
        }
    }
}

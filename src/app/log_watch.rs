//! Watches the queues of the log and of the audit stream: when a reader is too slow lines are dropped, which must not go
//! unnoticed.

use std::sync::Arc;
use std::time::Duration;

use tracing_appender::non_blocking::ErrorCounter;

use super::audit_stream::AuditStream;
use crate::metrics::Metrics;

/// How often the queues are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// The streams that the process writes its records to.
#[derive(Debug, Clone, Default)]
pub struct LogStreams {
    /// Counts log lines that were dropped.
    pub lines: Option<ErrorCounter>,
    /// The stream of audit records; None if they are log lines.
    pub audit: Option<AuditQueue>,
}

/// The stream of audit records and the queue in front of it.
#[derive(Debug, Clone)]
pub struct AuditQueue {
    /// Where the lines are written.
    pub stream: Arc<AuditStream>,
    /// Counts lines that the queue has dropped.
    pub queue: ErrorCounter,
}

impl LogStreams {
    fn dropped_lines(&self) -> u64 {
        self.lines.as_ref().map_or(0, |lines| lines.dropped_lines() as u64)
    }

    fn lost_audit_lines(&self) -> u64 {
        self.audit.as_ref().map_or(0, |audit| audit.stream.failed_lines() + audit.queue.dropped_lines() as u64)
    }

    /// Opens the audit file again, which another program may have renamed.
    pub(super) fn reopen(&self) {
        if let Some(audit) = &self.audit
            && let Err(error) = audit.stream.reopen()
        {
            tracing::error!(%error, "the audit file cannot be opened again; lines go to the one that is open");
        }
    }

    /// Counts lost lines in the metrics and reports new ones in the log. A report that is dropped itself counts as one
    /// more, so that it is made again.
    pub(super) async fn watch(self, metrics: Arc<Metrics>) {
        let (mut lines, mut audit_lines) = (0, 0);
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let total = self.dropped_lines();
            metrics.set_log_lines_dropped(total);
            if let Some(lines) = more(&mut lines, total) {
                tracing::warn!(lines, total, "log lines were dropped: standard error is not read fast enough");
            }
            let total = self.lost_audit_lines();
            metrics.set_audit_lines_dropped(total);
            if let Some(lines) = more(&mut audit_lines, total) {
                tracing::error!(lines, total, "audit lines were dropped; the audit log of the directory has them");
            }
        }
    }
}

/// By how much a total has grown since it was last reported.
fn more(reported: &mut u64, total: u64) -> Option<u64> {
    let more = total.saturating_sub(std::mem::replace(reported, total));
    (more > 0).then_some(more)
}

#[cfg(test)]
mod tests;

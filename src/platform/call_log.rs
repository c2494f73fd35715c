//! The calls of the platform that one request makes, for its trace.
//!
//! The log travels with the task, because the services of signing in, which lie between the request and the client, have no
//! part in it. Outside [`CallLog::watch`], such as in background work, nothing is recorded.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use url::Url;

tokio::task_local! {
    static CURRENT: CallLog;
}

/// One HTTP call of the platform. It has no query, body or header, which carry secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlatformCall {
    /// The platform's API: a constant of the client, without what the configured URL has before it.
    pub api: &'static str,
    /// The method.
    pub method: &'static str,
    /// The host of the platform.
    pub host: String,
    /// The port of the platform.
    pub port: Option<u16>,
    /// When the call began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    /// Why the call failed.
    pub failure: Option<CallFailure>,
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFailure {
    /// The platform did not respond in time.
    Timeout,
    /// The connection failed.
    Connection,
    /// A status other than 200.
    Status(u16),
    /// The response is too large or malformed.
    InvalidResponse,
    /// The platform's error number.
    Errcode(i64),
    /// The request ended before the call did.
    Cancelled,
}

/// The calls of one request so far.
#[derive(Debug, Clone, Default)]
pub struct CallLog(Arc<Mutex<Vec<PlatformCall>>>);

impl CallLog {
    /// Runs `work` and records the calls that it makes.
    pub async fn watch<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    /// Takes the recorded calls.
    pub fn take(&self) -> Vec<PlatformCall> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, call: PlatformCall) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

/// A call while it runs. It is recorded when it ends, also if it is cancelled.
pub(super) struct RunningCall(Option<(CallLog, PlatformCall)>);

impl RunningCall {
    /// Begins a call; one that no request makes, or one that is not traced, costs nothing but this look.
    pub(super) fn begin(api: &'static str, method: &'static str, url: &Url) -> Self {
        let recorded = CURRENT.try_with(CallLog::clone).ok().map(|log| {
            let now = Instant::now();
            let call = PlatformCall {
                api,
                method,
                host: url.host_str().unwrap_or_default().to_owned(),
                port: url.port_or_known_default(),
                began: now,
                ended: now,
                status: None,
                failure: Some(CallFailure::Cancelled),
            };
            (log, call)
        });
        Self(recorded)
    }

    /// Ends the call.
    pub(super) fn end(mut self, status: Option<u16>, failure: Option<CallFailure>) {
        if let Some((_, call)) = &mut self.0 {
            (call.status, call.failure) = (status, failure);
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if let Some((log, mut call)) = self.0.take() {
            call.ended = Instant::now();
            log.add(call);
        }
    }
}

#[cfg(test)]
mod tests;

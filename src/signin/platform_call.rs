//! Measures calls of the messaging platform.

use std::time::Instant;

use crate::metrics::Metrics;
use crate::platform::PlatformError;

/// Awaits a platform call and records its duration and its error.
pub(super) async fn measured<T>(
    metrics: &Metrics,
    name: &'static str,
    call: impl Future<Output = Result<T, PlatformError>>,
) -> Result<T, PlatformError> {
    let start = Instant::now();
    let result = call.await;
    metrics.platform_seconds.with_label_values(&[name]).observe(start.elapsed().as_secs_f64());
    if let Err(error) = &result {
        metrics.platform_errors.with_label_values(&[name, error.class()]).inc();
        match error {
            // No one can sign in until an operator fixes the setting.
            PlatformError::Configuration { .. } => tracing::error!(call = name, "{error}"),
            PlatformError::Unavailable(_) => tracing::warn!(call = name, "{error}"),
            PlatformError::InvalidCode
            | PlatformError::UnknownMember
            | PlatformError::NotVisible
            | PlatformError::CircuitOpen { .. } => {}
        }
    }
    result
}

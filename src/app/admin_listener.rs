//! The operators' listener: `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::signin::Services;

/// Serves metrics until `shutdown` says stop.
pub(super) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    signin: Arc<Services>,
    mut shutdown: watch::Receiver<bool>,
) {
    let page = move || async move {
        signin.measure();
        ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render())
    };
    let router = Router::new().route("/metrics", get(page));
    let stop = async move {
        let _ = shutdown.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
        tracing::error!(%error, "the admin listener ended");
    }
}

//! The admin listener: serves `/metrics` to operators with Pingora's HTTP server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use pingora_core::apps::ServerApp;
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::stream::Stream;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::signin::SignIn;

/// Pause after a failed accept, for example while no file descriptor is free.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

struct MetricsPage {
    metrics: Arc<Metrics>,
    signin: Arc<SignIn>,
}

#[async_trait]
impl ServeHttp for MetricsPage {
    async fn response(&self, exchange: &mut ServerSession) -> Response<Vec<u8>> {
        let request = exchange.req_header();
        if request.uri.path() != "/metrics" {
            return empty(StatusCode::NOT_FOUND, None);
        }
        match request.method {
            Method::GET | Method::HEAD => {
                self.signin.measure();
                let kind = HeaderValue::from_static("text/plain; version=0.0.4");
                let mut response = with_length(self.metrics.render());
                response.headers_mut().insert(CONTENT_TYPE, kind);
                if request.method == Method::HEAD {
                    response.body_mut().clear();
                }
                response
            }
            _ => empty(StatusCode::METHOD_NOT_ALLOWED, Some((ALLOW, HeaderValue::from_static("GET, HEAD")))),
        }
    }
}

fn empty(status: StatusCode, header: Option<(HeaderName, HeaderValue)>) -> Response<Vec<u8>> {
    let mut response = with_length(Vec::new());
    *response.status_mut() = status;
    response.headers_mut().extend(header);
    response
}

/// Builds a 200 response. Without a length Pingora would end the body by closing the connection.
fn with_length(body: Vec<u8>) -> Response<Vec<u8>> {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

/// Accepts connections until `shutdown` is true.
pub(super) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    signin: Arc<SignIn>,
    mut shutdown: watch::Receiver<bool>,
) {
    let page = Arc::new(MetricsPage { metrics, signin });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (page, shutdown) = (page.clone(), shutdown.clone());
                tokio::spawn(async move { page.process_new(Box::new(Stream::from(stream)), &shutdown).await });
            }
            Err(error) => {
                tracing::warn!(%error, "the admin listener cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

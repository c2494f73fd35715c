//! The operators' listener, which serves `/metrics` and `/api/ready` and nothing else. Uses Pingora's HTTP server, so that a build without
//! the demo needs no second HTTP stack.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{ACCEPT, ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use pingora_core::apps::ServerApp;
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::stream::Stream as TcpTransport;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::ready::{Readiness, ready};
use crate::gateway::unknown_arrival;
use crate::metrics::{Metrics, OPENMETRICS};
use crate::signin::SignInServices;
use crate::store::Store;
use crate::upstreams::Upstreams;

/// Pause after a failed accept, such as without free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long the page waits for the number of sessions.
const COUNT_TIMEOUT: Duration = Duration::from_secs(1);

/// The Prometheus page and the state of the gateway.
pub(super) struct AdminPages {
    pub(super) metrics: Arc<Metrics>,
    pub(super) store: Arc<dyn Store>,
    pub(super) signin: Arc<SignInServices>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) upstreams: Arc<Upstreams>,
}

impl AdminPages {
    /// The metrics of now. What only a question can tell is asked here, at most once a second.
    async fn metrics(&self, format: PageFormat) -> Response<Vec<u8>> {
        self.signin.measure();
        self.upstreams.measure();
        let backends = self.readiness.backends(&self.signin.backends).await;
        self.metrics.store_up.set(backends.store.into());
        self.metrics.directory_up.set(backends.directory.into());
        if backends.store {
            self.count_sessions().await;
        }
        let (page, content_type) = match format {
            PageFormat::Text => (self.metrics.render(), "text/plain; version=0.0.4"),
            PageFormat::OpenMetrics => (self.metrics.render_openmetrics(), OPENMETRICS),
        };
        let length = HeaderValue::from(page.len());
        let mut response = Response::new(page);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        // Without a length Pingora would end the body by closing the connection.
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }

    /// Counts the sessions in the store. While they cannot be counted, the page has the last number.
    async fn count_sessions(&self) {
        if let Ok(Ok(count)) = tokio::time::timeout(COUNT_TIMEOUT, self.store.count()).await {
            self.metrics.sessions_live.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    async fn ready(&self) -> Response<Vec<u8>> {
        let arrival = unknown_arrival();
        ready(&self.readiness, &self.signin.backends, &arrival).await.into_response(&arrival).map(Vec::from)
    }
}

#[async_trait]
impl ServeHttp for AdminPages {
    async fn response(&self, exchange: &mut ServerSession) -> Response<Vec<u8>> {
        let head = exchange.req_header();
        let response = match (head.uri.path(), &head.method) {
            ("/metrics", &Method::GET | &Method::HEAD) => self.metrics(PageFormat::of(&head.headers)).await,
            ("/api/ready", &Method::GET | &Method::HEAD) => self.ready().await,
            ("/metrics" | "/api/ready", _) => {
                return empty(StatusCode::METHOD_NOT_ALLOWED, Some(HeaderValue::from_static("GET, HEAD")));
            }
            _ => return empty(StatusCode::NOT_FOUND, None),
        };
        if head.method == Method::HEAD { response.map(|_| Vec::new()) } else { response }
    }
}

/// How the metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageFormat {
    Text,
    /// With exemplars.
    OpenMetrics,
}

impl PageFormat {
    /// OpenMetrics if the scraper accepts it: those that do prefer it.
    fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(ACCEPT).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let mut names = accepted.map(|entry| entry.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii());
        let is_accepted = names.any(|name| name.eq_ignore_ascii_case(b"application/openmetrics-text"));
        if is_accepted { Self::OpenMetrics } else { Self::Text }
    }
}

fn empty(status: StatusCode, allow: Option<HeaderValue>) -> Response<Vec<u8>> {
    let mut response = Response::new(Vec::new());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
    response.headers_mut().extend(allow.map(|methods| (ALLOW, methods)));
    response
}

/// Serves the pages until the task is cancelled.
pub(super) async fn serve(listener: TcpListener, pages: Arc<AdminPages>) {
    // Pingora requires one. The pages are served to the end of the drain.
    let (_running, shutdown) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (pages, shutdown) = (pages.clone(), shutdown.clone());
                    let transport: Stream = Box::new(TcpTransport::from(stream));
                    connections.spawn(async move {
                        let mut connection = Some(transport);
                        while let Some(open) = connection {
                            connection = pages.process_new(open, &shutdown).await;
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "admin listener could not accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "admin connection failed");
                }
            }
        }
    }
}

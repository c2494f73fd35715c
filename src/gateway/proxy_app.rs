//! Pingora's proxy as the acceptor runs it. Each HTTP/2 stream, which Pingora carries in a task of its own, can be cut;
//! on HTTP/1.1 the acceptor does the same for the whole connection.

use std::pin::Pin;
use std::sync::Arc;

use pingora_core::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::H2Options;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use prometheus::IntCounter;

use super::concurrency::{ConcurrencyLimit, Urgency};
use super::cut::ExchangeCutter;
use super::early_refusal::{self, EarlyRefusals, SATURATED};
use super::{Gateway, ProxyLane};

/// Pingora's proxy, and what cuts its exchanges.
pub(crate) struct ProxyApp {
    pub(crate) proxy: Arc<HttpProxy<ProxyLane>>,
    /// Answers most requests of HTTP/1.1; None if `server.fast_lane` is off.
    pub(crate) fast_lane: Option<Arc<Gateway>>,
    pub(crate) cutter: Arc<ExchangeCutter>,
    pub(crate) concurrency: Arc<ConcurrencyLimit>,
    /// Counts HTTP/2 requests that were refused because the gateway was saturated.
    pub(crate) saturated: IntCounter,
    pub(crate) refusals: EarlyRefusals,
}

impl HttpServerApp for ProxyApp {
    /// Written without `async_trait`, which would allocate a second future for every HTTP/1.1 request.
    fn process_new_http<'app, 'shutdown, 'future>(
        self: &'app Arc<Self>,
        mut exchange: ServerSession,
        shutdown: &'shutdown ShutdownWatch,
    ) -> Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'future>>
    where
        'app: 'future,
        'shutdown: 'future,
        Self: 'future,
    {
        if !exchange.is_http2() {
            return self.proxy.process_new_http(exchange, shutdown);
        }
        Box::pin(async move {
            let urgency = || Urgency::of(exchange.req_header().uri.path().as_bytes());
            let Ok(_slot) = self.concurrency.begin(urgency).await else {
                self.saturated.inc();
                // Fails only if the client has gone.
                let _ = early_refusal::write(&mut exchange, &SATURATED, &self.refusals).await;
                return None;
            };
            self.cutter.run(self.proxy.process_new_http(exchange, shutdown)).await.flatten()
        })
    }

    fn h2_options(&self) -> Option<H2Options> {
        self.proxy.h2_options()
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        self.proxy.server_options()
    }
}

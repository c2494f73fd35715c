//! Both lanes as the acceptor runs them. Each HTTP/2 stream, which Pingora carries in a task of its own, can be cut; on HTTP/1.1 the
//! acceptor does the same for the whole connection.

use std::pin::{Pin, pin};
use std::sync::Arc;

use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::H2Options;
use pingora_core::server::ShutdownWatch;
use prometheus::IntCounter;

use super::concurrency::{ConcurrencyLimit, Urgency};
use super::cut::ExchangeCutter;
use super::early_refusal::{self, EarlyRefusals, SATURATED};
use super::{ExchangeEnd, Gateway};

/// Answers the requests that Pingora's sessions read, and cuts their exchanges. pingora-proxy is not used for it: its future takes 13 KB,
/// and moving that for every request took a twelfth of the time of a request over HTTP/2.
pub(crate) struct ProxyApp {
    pub(crate) gateway: Arc<Gateway>,
    /// Answers most requests of HTTP/1.1; None if `server.fast_lane` is off.
    pub(crate) fast_lane: Option<Arc<Gateway>>,
    pub(crate) cutter: Arc<ExchangeCutter>,
    pub(crate) concurrency: Arc<ConcurrencyLimit>,
    /// Counts HTTP/2 requests that were refused because the gateway was saturated.
    pub(crate) saturated: IntCounter,
    pub(crate) refusals: EarlyRefusals,
    pub(crate) server_options: HttpServerOptions,
    pub(crate) h2_options: H2Options,
}

impl HttpServerApp for ProxyApp {
    /// Written without `async_trait`, so that each version of HTTP has a future of its own size.
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
            return Box::pin(async move {
                match self.gateway.serve_session(&mut exchange, shutdown).await {
                    ExchangeEnd::Complete => finish(exchange).await,
                    ExchangeEnd::Incomplete => None,
                }
            });
        }
        Box::pin(async move {
            let urgency = || Urgency::of(exchange.req_header().uri.path().as_bytes());
            let Ok(_slot) = self.concurrency.begin(urgency).await else {
                self.saturated.inc();
                // Fails only if the client has gone.
                let _ = early_refusal::write(&mut exchange, &SATURATED, &self.refusals).await;
                return None;
            };
            let served = {
                let serving = pin!(self.gateway.serve_session(&mut exchange, shutdown));
                self.cutter.run(serving).await
            };
            match served? {
                ExchangeEnd::Complete => finish(exchange).await,
                ExchangeEnd::Incomplete => None,
            }
        })
    }

    fn h2_options(&self) -> Option<H2Options> {
        Some(self.h2_options.clone())
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.server_options)
    }
}

/// Ends an exchange that is complete. Returns the connection of HTTP/1 if it can carry another request.
async fn finish(exchange: ServerSession) -> Option<ReusedHttpStream> {
    let settings = HttpPersistentSettings::for_session(&exchange);
    let reusable = exchange.finish().await.ok().flatten()?;
    Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
}

//! The only outgoing HTTP client.
//!
//! URLs carry secrets in the query, as WeCom's API requires, so no error names a URL. Certificates are always
//! verified; no setting turns this off. Proxies from the environment are not used: only the configuration decides
//! where secrets are sent.

#![expect(clippy::disallowed_types, reason = "the home of the HTTP client")]

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::StatusCode;
use serde_json::Value;
use url::Url;

use crate::error::chain;

/// Largest response body. The platform's are a few hundred bytes.
const MAX_BODY: usize = 256 * 1024;

/// Why a request failed. Does not name the URL.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The client cannot be built, for example because the system has no root certificates.
    #[error("the HTTP client cannot be built: {0}")]
    Setup(String),
    /// The request timed out.
    #[error("no response in time")]
    Timeout,
    /// The connection failed; the text is the chain of causes.
    #[error("{0}")]
    Connection(String),
    /// A status other than 200; redirects are not followed.
    #[error("responded with status {}", .0.as_u16())]
    Status(StatusCode),
    /// The body exceeds [`MAX_BODY`].
    #[error("the response body is too large")]
    BodyTooLarge,
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            return HttpError::Timeout;
        }
        HttpError::Connection(chain(&error.without_url()))
    }
}

/// An HTTP client. Clones share a connection pool.
#[derive(Debug, Clone)]
pub struct HttpClient {
    inner: reqwest::Client,
}

impl HttpClient {
    /// A client for the server at `base`. `timeout` covers a whole request, from connecting to the last byte read.
    pub fn new(base: &Url, timeout: Duration) -> Result<Self, HttpError> {
        let builder = match base.scheme() {
            // The configuration allows plain HTTP in development only. It needs no root certificates, so that a
            // machine without any can run the simulated platform; the client then trusts no certificate.
            "http" => reqwest::Client::builder().tls_certs_only([]),
            _ => reqwest::Client::builder().https_only(true),
        };
        let inner = builder
            .timeout(timeout)
            .connect_timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .tls_backend_rustls()
            .build()
            .map_err(|error| HttpError::Setup(HttpError::from(error).to_string()))?;
        Ok(Self { inner })
    }

    /// Sends a GET and returns the body of a 200 response.
    pub async fn get(&self, url: Url) -> Result<Bytes, HttpError> {
        read_body(self.inner.get(url).send().await?).await
    }

    /// Posts a body of this content type and returns the body of a 200 response.
    pub async fn post_bytes(&self, url: Url, content_type: &'static str, body: Bytes) -> Result<Bytes, HttpError> {
        read_body(self.inner.post(url).header(http::header::CONTENT_TYPE, content_type).body(body).send().await?).await
    }

    /// Posts JSON and returns the body of a 200 response.
    pub async fn post(&self, url: Url, body: &Value) -> Result<Bytes, HttpError> {
        read_body(self.inner.post(url).json(body).send().await?).await
    }
}

impl HttpError {
    /// Whether the same request may succeed a moment later.
    pub fn is_temporary(&self) -> bool {
        match self {
            HttpError::Timeout | HttpError::Connection(_) => true,
            HttpError::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            HttpError::Setup(_) | HttpError::BodyTooLarge => false,
        }
    }
}

async fn read_body(mut response: reqwest::Response) -> Result<Bytes, HttpError> {
    if response.status() != StatusCode::OK {
        return Err(HttpError::Status(response.status()));
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(HttpError::BodyTooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

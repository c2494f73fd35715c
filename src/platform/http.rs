//! The only outgoing HTTP client.
//!
//! What it asks carries secrets in the query (the platform's rule), so no error of it names a URL.
//! Certificates are always verified: there is no setting that turns this off. Proxies named in the
//! environment are not used: where secrets travel is decided by the configuration alone.

#![expect(clippy::disallowed_types, reason = "the home of the HTTP client")]

use std::error::Error as _;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::StatusCode;
use serde_json::Value;
use url::Url;

/// The longest answer that is read. The platform's are a few hundred bytes.
const LONGEST_ANSWER: usize = 256 * 1024;

/// Why there is no answer. Says nothing about the address that was asked.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The client cannot be made, for example because the system has no root certificates.
    #[error("no HTTP client can be made: {0}")]
    Setup(String),
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// No connection, or it broke; the text is the chain of causes.
    #[error("{0}")]
    Broken(String),
    /// An answer other than 200, a redirect included.
    #[error("answered with status {}", .0.as_u16())]
    Status(StatusCode),
    /// An answer longer than any that makes sense.
    #[error("the answer is too long")]
    TooLong,
}

impl From<reqwest::Error> for HttpError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            return HttpError::Timeout;
        }
        let error = error.without_url();
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        HttpError::Broken(text)
    }
}

/// Asks other servers. Clones share their connections.
#[derive(Debug, Clone)]
pub struct HttpClient {
    inner: reqwest::Client,
}

impl HttpClient {
    /// A client for the server at `base` whose calls take at most `timeout` each, from the first byte
    /// sent to the last one read.
    pub fn new(base: &Url, timeout: Duration) -> Result<Self, HttpError> {
        let builder = match base.scheme() {
            // Plain HTTP, as the configuration allows in development only, needs no root certificates:
            // a machine that has none can still run the simulated platform. Nobody is trusted then.
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

    /// The body of a 200 answer.
    pub async fn get(&self, url: Url) -> Result<Bytes, HttpError> {
        read(self.inner.get(url).send().await?).await
    }

    /// The body of a 200 answer to a JSON text.
    pub async fn post(&self, url: Url, body: &Value) -> Result<Bytes, HttpError> {
        read(self.inner.post(url).json(body).send().await?).await
    }
}

async fn read(mut answer: reqwest::Response) -> Result<Bytes, HttpError> {
    if answer.status() != StatusCode::OK {
        return Err(HttpError::Status(answer.status()));
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > LONGEST_ANSWER {
            return Err(HttpError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

//! A client that speaks HTTP/2 properly.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use tokio::task::JoinHandle;

use super::{Answer, PATIENCE, Place, Stream, within};

/// One connection; requests on it may run at the same time.
pub struct Http2 {
    requests: SendRequest<Bytes>,
    origin: String,
    token: Option<String>,
    driver: JoinHandle<()>,
}

impl Http2 {
    /// Connects and agrees on HTTP/2; fails when the server will not.
    pub async fn open(place: &Place, token: Option<String>) -> Http2 {
        let trust = place.trust.as_ref().expect("a server that speaks TLS").offering(&[b"h2"]);
        let secure = Place { trust: Some(trust), ..place.clone() };
        let stream = within(PATIENCE, "a connection", Stream::connect(&secure)).await.expect("a connection");
        assert_eq!(stream.protocol().as_deref(), Some(&b"h2"[..]), "the protocol agreed on");
        let shaking = h2::client::Builder::new().initial_window_size(1 << 20).handshake(stream);
        let (requests, connection) = within(PATIENCE, "a preface", shaking).await.expect("HTTP/2");
        // Errors show at the requests that they end.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Http2 { requests, origin: format!("https://{}", place.address), token, driver }
    }

    /// GET.
    pub async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], b"").await
    }

    /// POST of a JSON value.
    pub async fn post_json(&self, target: &str, body: &serde_json::Value) -> Answer {
        self.send("POST", target, &[("content-type", "application/json")], body.to_string().as_bytes()).await
    }

    /// Any request; fails without an answer.
    pub async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        match self.attempt(method, target, headers, body, None).await {
            Ok(answer) => answer,
            Err(error) => panic!("no answer to {method} {target}: {error}"),
        }
    }

    /// Any request, with trailers behind its body: the whole answer, or how its stream or connection ended.
    pub async fn attempt(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        trailers: Option<HeaderMap>,
    ) -> Result<Answer, h2::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{target}", self.origin));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let mut requests = within(PATIENCE, "a free stream", self.requests.clone().ready()).await?;
        let bodiless = body.is_empty() && trailers.is_none();
        let (answer, mut sending) = requests.send_request(request, bodiless)?;
        if !bodiless {
            // An early refusal ends the stream before it is all sent: its answer tells.
            let _ = sending.send_data(Bytes::copy_from_slice(body), trailers.is_none());
            if let Some(trailers) = trailers {
                let _ = sending.send_trailers(trailers);
            }
        }
        let (head, mut pieces) = within(PATIENCE, "an answer", answer).await?.into_parts();
        let mut body = Vec::new();
        while let Some(piece) = within(PATIENCE, "the rest of an answer", pieces.data()).await {
            let piece = piece?;
            pieces.flow_control().release_capacity(piece.len())?;
            body.extend_from_slice(&piece);
        }
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Ok(Answer { asked: format!("{method} {target} HTTP/2"), status: head.status.as_u16(), headers, body })
    }

    /// Waits for the end of the connection.
    pub async fn ended(&mut self) {
        within(PATIENCE, "the end of the connection", &mut self.driver).await.expect("a connection");
    }
}

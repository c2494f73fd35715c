//! A conforming HTTP/2 client.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use tokio::task::JoinHandle;

use super::{Response, ServerAddress, Stream, TEST_TIMEOUT, within};

/// One connection with concurrent streams.
pub struct Http2Client {
    requests: SendRequest<Bytes>,
    origin: String,
    token: Option<String>,
    driver: JoinHandle<()>,
}

impl Http2Client {
    /// Connects and negotiates HTTP/2 by ALPN; without TLS, takes it for granted.
    pub async fn open(server: &ServerAddress, token: Option<String>) -> Http2Client {
        let client_tls = server.client_tls.as_ref().map(|client_tls| client_tls.with_alpn(&[b"h2"]));
        let server_with_h2 = ServerAddress { client_tls, ..server.clone() };
        let stream =
            within(TEST_TIMEOUT, "a connection", Stream::connect(&server_with_h2)).await.expect("a connection");
        let expected = server.client_tls.as_ref().map(|_| &b"h2"[..]);
        assert_eq!(stream.protocol().as_deref(), expected, "the negotiated protocol");
        let handshake = h2::client::Builder::new().initial_window_size(1 << 20).handshake(stream);
        let (requests, connection) = within(TEST_TIMEOUT, "the HTTP/2 handshake", handshake).await.expect("HTTP/2");
        // Connection errors surface at the requests that they end.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Http2Client { requests, origin: format!("{}://{}", server.scheme(), server.address), token, driver }
    }

    /// The same connection with another `:authority`.
    pub fn with_authority(&self, authority: &str) -> Http2Client {
        Http2Client {
            requests: self.requests.clone(),
            origin: format!("https://{authority}"),
            token: self.token.clone(),
            driver: tokio::spawn(async {}),
        }
    }

    pub async fn get(&self, target: &str) -> Response {
        self.send("GET", target, &[], b"").await
    }

    /// POST of a JSON value.
    pub async fn post_json(&self, target: &str, body: &serde_json::Value) -> Response {
        self.send("POST", target, &[("content-type", "application/json")], body.to_string().as_bytes()).await
    }

    /// Sends any request; panics without a response.
    pub async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        match self.try_send(method, target, headers, body, None).await {
            Ok(response) => response,
            Err(error) => panic!("no response to {method} {target}: {error}"),
        }
    }

    /// Sends any request, with optional trailers; returns the response or the stream error.
    pub async fn try_send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        trailers: Option<HeaderMap>,
    ) -> Result<Response, h2::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{target}", self.origin));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let mut requests = within(TEST_TIMEOUT, "a free stream", self.requests.clone().ready()).await?;
        let bodiless = body.is_empty() && trailers.is_none();
        let (response, mut sending) = requests.send_request(request, bodiless)?;
        if !bodiless {
            // An early refusal closes the stream before the body is sent; the response shows it.
            let _ = sending.send_data(Bytes::copy_from_slice(body), trailers.is_none());
            if let Some(trailers) = trailers {
                let _ = sending.send_trailers(trailers);
            }
        }
        let (head, mut pieces) = within(TEST_TIMEOUT, "a response", response).await?.into_parts();
        let mut body = Vec::new();
        while let Some(piece) = within(TEST_TIMEOUT, "the response body", pieces.data()).await {
            let piece = piece?;
            pieces.flow_control().release_capacity(piece.len())?;
            body.extend_from_slice(&piece);
        }
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Ok(Response { request_line: format!("{method} {target} HTTP/2"), status: head.status.as_u16(), headers, body })
    }

    /// Sends a request and returns the trailers of its response; panics without a response.
    pub async fn trailers(&self, target: &str, body: &[u8]) -> HeaderMap {
        let token = self.token.clone().unwrap_or_default();
        let mut stream = self.begin("POST", target, &token).await;
        stream.send(body).await;
        stream.end();
        while !stream.next_piece().await.expect("a response").is_empty() {}
        stream.trailers().await
    }

    /// Begins a request with another token, whose body may follow and whose response is read piece by piece.
    pub async fn begin(&self, method: &str, target: &str, token: &str) -> Http2Stream {
        let request = Request::builder().method(method).uri(format!("{}{target}", self.origin));
        let request = request.header("authorization", format!("Bearer {token}")).body(()).expect("a request");
        let ready = within(TEST_TIMEOUT, "a free stream", self.requests.clone().ready()).await;
        let sent = ready.expect("a connection").send_request(request, method == "GET");
        let (response, sending) = sent.expect("a stream");
        Http2Stream { response: Some(response), sending, pieces: None }
    }

    /// Waits for the end of the connection.
    pub async fn wait_for_end(&mut self) {
        within(TEST_TIMEOUT, "the end of the connection", &mut self.driver).await.expect("a connection");
    }
}

/// A stream whose body and response are in progress.
pub struct Http2Stream {
    response: Option<ResponseFuture>,
    sending: SendStream<Bytes>,
    pieces: Option<RecvStream>,
}

impl Http2Stream {
    /// Sends a piece of the body, which does not end here.
    pub async fn send(&mut self, piece: &[u8]) {
        if !piece.is_empty() {
            self.sending.send_data(Bytes::copy_from_slice(piece), false).expect("an open stream");
        }
    }

    /// Ends the body.
    pub fn end(&mut self) {
        self.sending.send_data(Bytes::new(), true).expect("an open stream");
    }

    /// Ends the request early.
    pub fn cancel(&mut self) {
        self.sending.send_reset(h2::Reason::CANCEL);
    }

    /// Whether the response has ended with its header.
    pub async fn ends_with_the_header(&mut self) -> bool {
        let response = self.response.take().expect("a stream without a response");
        within(TEST_TIMEOUT, "a response", response).await.expect("a response").into_body().is_end_stream()
    }

    /// The trailers, once the body has been read.
    pub async fn trailers(&mut self) -> HeaderMap {
        let pieces = self.pieces.as_mut().expect("a response");
        within(TEST_TIMEOUT, "trailers", pieces.trailers()).await.expect("a response").unwrap_or_default()
    }

    /// Waits for the response if necessary and reads the next piece of its body; empty at its end.
    pub async fn next_piece(&mut self) -> Result<Vec<u8>, h2::Error> {
        if let Some(response) = self.response.take() {
            self.pieces = Some(within(TEST_TIMEOUT, "a response", response).await?.into_body());
        }
        let pieces = self.pieces.as_mut().expect("a response");
        match within(TEST_TIMEOUT, "the response body", pieces.data()).await {
            Some(piece) => {
                let piece = piece?;
                pieces.flow_control().release_capacity(piece.len())?;
                Ok(piece.to_vec())
            }
            None => Ok(Vec::new()),
        }
    }
}

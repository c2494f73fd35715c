//! Connections to the upstream that the test answers itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{Behaviour, BufferedStream, Gateway, Handshake, RecordedRequest, TEST_TIMEOUT, Upstream, within};

/// A connection accepted by the upstream whose first request head was read.
pub struct UpstreamConnection {
    /// The request, without its body.
    pub request: RecordedRequest,
    /// The stream behind the request head.
    pub stream: BufferedStream,
}

impl UpstreamConnection {
    /// Sends the 101, followed by `behind` in the same write.
    pub async fn accept_websocket(&mut self, behind: &[u8]) {
        self.accept_websocket_with("", behind).await;
    }

    /// Sends the 101 with further header lines, each with its line end.
    pub async fn accept_websocket_with(&mut self, lines: &str, behind: &[u8]) {
        let key = self.request.header("sec-websocket-key").expect("a handshake");
        let mut bytes = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {}\r\n{lines}\r\n",
            derive_accept_key(key.as_bytes())
        )
        .into_bytes();
        bytes.extend_from_slice(behind);
        self.stream.send(&bytes).await;
    }
}

/// Every connection to the upstream, as soon as its first request head was read.
pub struct UpstreamConnections {
    receiver: mpsc::UnboundedReceiver<UpstreamConnection>,
}

impl UpstreamConnections {
    /// Hands all later connections of this upstream to the test.
    pub fn intercept(upstream: &Upstream) -> UpstreamConnections {
        let (sender, receiver) = mpsc::unbounded_channel();
        upstream.set_behaviour(Behaviour::Script(Arc::new(move |request, stream, unread| {
            // The receiver is gone once the test has ended.
            let _ = sender.send(UpstreamConnection { request, stream: BufferedStream::new(stream, unread) });
            Box::pin(async {})
        })));
        UpstreamConnections { receiver }
    }

    /// Waits for the next connection.
    pub async fn next(&mut self) -> UpstreamConnection {
        within(TEST_TIMEOUT, "a connection to the upstream", self.receiver.recv()).await.expect("an upstream")
    }

    /// Whether no connection arrives within this time.
    pub async fn has_none_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.receiver.recv()).await.is_err()
    }
}

/// Opens a WebSocket and returns the client's and the upstream's side as raw streams.
pub async fn open_tunnel(
    desk: &Gateway,
    upstream_connections: &mut UpstreamConnections,
    handshake: &Handshake,
) -> (BufferedStream, BufferedStream) {
    let accept = async {
        let mut upstream_connection = upstream_connections.next().await;
        upstream_connection.accept_websocket(b"").await;
        upstream_connection.stream
    };
    let ((_, client), upstream) = tokio::join!(BufferedStream::open_tunnel(desk, handshake), accept);
    (client, upstream)
}

//! A small help desk behind the demo's gateway: shows what upstreams receive, and echoes sockets.

use std::net::SocketAddr;

use axum::Json;
use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{Html, IntoResponse};
use axum::routing::{any, get};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::domain::client::Client;

const CLIENT: &str = include_str!("client.html");
const STYLE: &str = include_str!("client.css");
const SCRIPT: &str = include_str!("client.js");

/// Nothing from elsewhere, nothing inline. `connect-src 'self'` covers the WebSocket to the gateway as well.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Starts it on a free port.
pub(super) async fn start() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let mut router = Router::new();
    for client in Client::ALL {
        let home = page(client);
        router = router
            .route(&home, get(client_page))
            .route(&format!("{home}client.css"), get(|| asset("text/css; charset=utf-8", STYLE)))
            .route(&format!("{home}client.js"), get(|| asset("text/javascript; charset=utf-8", SCRIPT)));
    }
    let router = router.route("/ws/employee", any(socket)).route("/ws/agent", any(socket)).fallback(show);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the demo help desk ended");
        }
    });
    Ok(address)
}

/// Where a client's page is.
fn page(client: Client) -> String {
    format!("/{}/", client.as_str())
}

async fn client_page() -> impl IntoResponse {
    ([("content-security-policy", POLICY), ("referrer-policy", "no-referrer")], Html(CLIENT))
}

async fn asset(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    ([("content-type", content_type)], text)
}

/// What the upstream received.
async fn show(method: Method, uri: Uri, headers: HeaderMap) -> Json<Value> {
    Json(json!({ "method": method.as_str(), "target": uri.to_string(), "headers": plain(&headers) }))
}

fn plain(headers: &HeaderMap) -> Value {
    let pairs = headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    Value::Object(pairs.collect())
}

async fn socket(upgrade: WebSocketUpgrade, headers: HeaderMap) -> impl IntoResponse {
    let greeting = json!({ "msg_type": "hello", "extra_data": plain(&headers) }).to_string();
    upgrade.on_upgrade(|socket| echo(socket, greeting))
}

async fn echo(mut socket: WebSocket, greeting: String) {
    if socket.send(Message::Text(greeting.into())).await.is_err() {
        return;
    }
    while let Some(Ok(message)) = socket.recv().await {
        let answered = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if answered.is_err() {
            return;
        }
    }
}

//! The demo help desk, an upstream of the demo's gateway: shows the requests that upstreams receive, echoes
//! WebSocket messages and serves the demo client.

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

const CLIENT_PAGE: &str = include_str!("client.html");
const CLIENT_STYLE: &str = include_str!("client.css");
const CLIENT_SCRIPT: &str = include_str!("client.js");

/// Allows nothing inline and nothing from other sites. `connect-src 'self'` covers the WebSocket too.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Starts the help desk on this address; port 0 picks a free one.
pub async fn start(listen: SocketAddr) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let mut router = Router::new();
    for client in Client::ALL {
        let home = format!("/{}/", client.as_str());
        router = router
            .route(&home, get(client_page))
            .route(&format!("{home}client.css"), get(|| asset("text/css; charset=utf-8", CLIENT_STYLE)))
            .route(&format!("{home}client.js"), get(|| asset("text/javascript; charset=utf-8", CLIENT_SCRIPT)));
    }
    let router =
        router.route("/ws/employee", any(accept_socket)).route("/ws/agent", any(accept_socket)).fallback(show_request);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the demo help desk stopped");
        }
    });
    Ok(address)
}

async fn client_page() -> impl IntoResponse {
    ([("content-security-policy", POLICY), ("referrer-policy", "no-referrer")], Html(CLIENT_PAGE))
}

async fn asset(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    ([("content-type", content_type)], text)
}

/// Returns the request as JSON.
async fn show_request(method: Method, uri: Uri, headers: HeaderMap) -> Json<Value> {
    Json(json!({ "method": method.as_str(), "target": uri.to_string(), "headers": to_json(&headers) }))
}

fn to_json(headers: &HeaderMap) -> Value {
    let pairs = headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    Value::Object(pairs.collect())
}

async fn accept_socket(upgrade: WebSocketUpgrade, headers: HeaderMap) -> impl IntoResponse {
    let greeting = json!({ "msg_type": "hello", "extra_data": to_json(&headers) }).to_string();
    upgrade.on_upgrade(|socket| echo(socket, greeting))
}

/// Sends the greeting, then echoes every message until the socket closes.
async fn echo(mut socket: WebSocket, greeting: String) {
    if socket.send(Message::Text(greeting.into())).await.is_err() {
        return;
    }
    while let Some(Ok(message)) = socket.recv().await {
        let sent = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

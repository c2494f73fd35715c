//! An HTTP client of the gateway with a token and cookies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use url::Url;

use super::connection::{BodyFraming, MalformedResponse};
use super::{Connection, Handshake, Http2Client, Response, ServerAddress, WebSocket};

/// A client. Every request uses a new connection; cookies are kept.
#[derive(Clone)]
pub struct Client {
    server: ServerAddress,
    token: Option<String>,
    host: Option<String>,
    headers: Vec<(String, String)>,
    jar: Arc<Mutex<CookieJar>>,
}

impl Client {
    /// A client without token or cookies.
    pub fn new(server: impl Into<ServerAddress>) -> Client {
        Client { server: server.into(), token: None, host: None, headers: Vec::new(), jar: Arc::default() }
    }

    /// The same client with this token.
    pub fn with_token(&self, token: &str) -> Client {
        Client { token: Some(token.to_owned()), ..self.clone() }
    }

    /// The same client with this `Host` instead of the server's address.
    pub fn with_host(&self, host: &str) -> Client {
        Client { host: Some(host.to_owned()), ..self.clone() }
    }

    /// The same client with a header on every request.
    pub fn with_header(&self, name: &str, value: &str) -> Client {
        let mut changed = self.clone();
        changed.headers.push((name.to_owned(), value.to_owned()));
        changed
    }

    /// The token; panics without one.
    #[track_caller]
    pub fn token(&self) -> &str {
        self.token.as_deref().expect("a client with a token")
    }

    pub fn token_if_any(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The server's origin, as a browser would name it.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.server.scheme(), self.server.address)
    }

    pub fn jar(&self) -> CookieJar {
        self.jar.lock().unwrap().clone()
    }

    /// Replaces the cookies.
    pub fn use_jar(&self, jar: CookieJar) {
        *self.jar.lock().unwrap() = jar;
    }

    pub async fn get(&self, target: &str) -> Response {
        self.send("GET", target, &[], b"").await
    }

    /// POST without a body.
    pub async fn post(&self, target: &str) -> Response {
        self.send("POST", target, &[], b"").await
    }

    /// POST of a JSON value.
    pub async fn post_json(&self, target: &str, body: &Value) -> Response {
        self.post_body(target, "application/json", body.to_string().as_bytes()).await
    }

    /// POST of a body with this content type.
    pub async fn post_body(&self, target: &str, content_type: &str, body: &[u8]) -> Response {
        self.send("POST", target, &[("Content-Type", content_type)], body).await
    }

    /// Sends any request. The target is sent unchanged; an absolute URL goes to its own host.
    pub async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        match self.try_send(method, target, headers, body).await {
            Ok(response) => response,
            Err(why) => panic!("no response to {method} {target}: {why}"),
        }
    }

    /// Sends any request to a gateway that may be killed meanwhile.
    pub async fn try_send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, String> {
        let (server, target) = self.resolve(target);
        let address = server.address;
        let mut connection = Connection::try_open(server).await.map_err(|error| error.to_string())?;
        let mut request = self.head(method, address, &target, headers);
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        connection.send(&request).await;
        let rule = if method == "HEAD" { BodyFraming::None } else { BodyFraming::FromHead };
        let response = connection.try_response(rule).await.map_err(|MalformedResponse(why)| why)?;
        let response = response.ok_or("the connection was closed")?;
        let mut jar = self.jar.lock().unwrap();
        for cookie in response.header_all("set-cookie") {
            jar.store(cookie);
        }
        drop(jar);
        Ok(response)
    }

    /// Opens a WebSocket with the token as `bearer.<token>`; panics if it is refused.
    pub async fn websocket(&self, target: &str) -> WebSocket {
        self.handshake(target).expect_accepted().await
    }

    /// A WebSocket handshake with the token as `bearer.<token>`, not sent yet.
    pub fn handshake(&self, target: &str) -> Handshake {
        let (server, target) = self.resolve(target);
        let handshake = Handshake::new(server, &target);
        let handshake = match &self.host {
            Some(host) => handshake.host(host),
            None => handshake,
        };
        let handshake = self.headers.iter().fold(handshake, |handshake, (name, value)| handshake.header(name, value));
        match &self.token {
            Some(token) => handshake.protocols(&[&format!("bearer.{token}")]),
            None => handshake,
        }
    }

    /// Opens an HTTP/2 connection with this client's token.
    pub async fn http2(&self) -> Http2Client {
        Http2Client::open(&self.server, self.token.clone()).await
    }

    fn head(&self, method: &str, address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> String {
        let host = self.host.clone().unwrap_or_else(|| address.to_string());
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let path = target.split('?').next().unwrap_or_default();
        if let Some(cookies) = self.jar.lock().unwrap().for_path(path) {
            head.push_str(&format!("Cookie: {cookies}\r\n"));
        }
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }

    /// The server and the target of a path or an absolute URL.
    fn resolve(&self, target: &str) -> (ServerAddress, String) {
        if !target.starts_with("http://") && !target.starts_with("https://") {
            return (self.server.clone(), target.to_owned());
        }
        let url = Url::parse(target).expect("an address");
        let address = format!("{}:{}", url.host_str().expect("a host"), url.port_or_known_default().expect("a port"));
        let address: SocketAddr = address.parse().unwrap_or_else(|_| panic!("{target} names no IP address"));
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let client_tls = self.server.client_tls.clone().filter(|_| url.scheme() == "https");
        (ServerAddress { address, client_tls }, format!("{}{query}", url.path()))
    }
}

/// Cookies by name and path; `Max-Age=0` removes one.
#[derive(Debug, Clone, Default)]
pub struct CookieJar {
    cookies: Vec<Cookie>,
}

#[derive(Debug, Clone)]
struct Cookie {
    name: String,
    value: String,
    path: String,
}

impl CookieJar {
    /// Stores a `Set-Cookie` line.
    pub fn store(&mut self, line: &str) {
        let mut parts = line.split(';').map(str::trim);
        let (name, value) = parts.next().and_then(|pair| pair.split_once('=')).expect("a cookie's name and value");
        let attributes: Vec<(String, String)> = parts
            .map(|part| part.split_once('=').unwrap_or((part, "")))
            .map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let attribute = |wanted: &str| attributes.iter().find(|(key, _)| key == wanted).map(|(_, v)| v.as_str());
        let path = attribute("path").filter(|path| path.starts_with('/')).unwrap_or("/").to_owned();
        self.cookies.retain(|cookie| cookie.name != name || cookie.path != path);
        let gone = attribute("max-age").is_some_and(|age| age.parse::<i64>().is_ok_and(|age| age <= 0));
        if !gone {
            self.cookies.push(Cookie { name: name.to_owned(), value: value.to_owned(), path });
        }
    }

    /// Names and values, in the order in which they were set.
    pub fn pairs(&self) -> Vec<(String, String)> {
        self.cookies.iter().map(|cookie| (cookie.name.clone(), cookie.value.clone())).collect()
    }

    /// Replaces every value, to tamper with cookies.
    pub fn tampered(mut self, change: impl Fn(&str) -> String) -> CookieJar {
        for cookie in &mut self.cookies {
            cookie.value = change(&cookie.value);
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    fn for_path(&self, path: &str) -> Option<String> {
        let fits = |cookie: &&Cookie| {
            path == cookie.path
                || path.starts_with(&cookie.path)
                    && (cookie.path.ends_with('/') || path[cookie.path.len()..].starts_with('/'))
        };
        let pairs: Vec<String> =
            self.cookies.iter().filter(fits).map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

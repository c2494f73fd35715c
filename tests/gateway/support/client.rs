//! A client of the gateway: a browser or an app, with its token and its cookies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use url::Url;

use super::wire::{BodyRule, Broken};
use super::{Answer, Connection, Handshake, Socket};

/// Somebody who calls the gateway. Every request takes a connection of its own; cookies are kept.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    token: Option<String>,
    headers: Vec<(String, String)>,
    jar: Arc<Mutex<Jar>>,
}

impl Client {
    /// Somebody new, without token or cookies.
    pub fn new(address: SocketAddr) -> Client {
        Client { address, token: None, headers: Vec::new(), jar: Arc::default() }
    }

    /// The same one, signed in with this token.
    pub fn bearing(&self, token: &str) -> Client {
        Client { token: Some(token.to_owned()), ..self.clone() }
    }

    /// The same one with a header on every request.
    pub fn with_header(&self, name: &str, value: &str) -> Client {
        let mut changed = self.clone();
        changed.headers.push((name.to_owned(), value.to_owned()));
        changed
    }

    /// The token; fails when there is none.
    #[track_caller]
    pub fn token(&self) -> &str {
        self.token.as_deref().expect("a client with a token")
    }

    /// The token, if there is one.
    pub fn token_if_any(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Where requests go.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cookies.
    pub fn jar(&self) -> Jar {
        self.jar.lock().unwrap().clone()
    }

    /// Puts other cookies in the place of these.
    pub fn use_jar(&self, jar: Jar) {
        *self.jar.lock().unwrap() = jar;
    }

    /// GET.
    pub async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], b"").await
    }

    /// POST without a body.
    pub async fn post(&self, target: &str) -> Answer {
        self.send("POST", target, &[], b"").await
    }

    /// POST of a JSON value.
    pub async fn post_json(&self, target: &str, body: &Value) -> Answer {
        self.post_body(target, "application/json", body.to_string().as_bytes()).await
    }

    /// POST of any bytes as any kind.
    pub async fn post_body(&self, target: &str, content_type: &str, body: &[u8]) -> Answer {
        self.send("POST", target, &[("Content-Type", content_type)], body).await
    }

    /// Any request. The target is sent as it is; an absolute `http` address goes to its own host.
    pub async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        match self.attempt(method, target, headers, body).await {
            Ok(answer) => answer,
            Err(why) => panic!("no answer to {method} {target}: {why}"),
        }
    }

    /// The same for a gateway that may die meanwhile: the whole answer, or why there is none.
    pub async fn attempt(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, String> {
        let (address, target) = self.place(target);
        let mut connection = Connection::try_open(address).await.map_err(|error| error.to_string())?;
        let mut request = self.head(method, address, &target, headers);
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        connection.send(&request).await;
        let rule = if method == "HEAD" { BodyRule::None } else { BodyRule::ByHead };
        let answer = connection.try_answer(rule).await.map_err(|Broken(why)| why)?;
        let answer = answer.ok_or("the connection was closed")?;
        let mut jar = self.jar.lock().unwrap();
        for cookie in answer.header_all("set-cookie") {
            jar.keep(cookie);
        }
        drop(jar);
        Ok(answer)
    }

    /// A WebSocket that was let in; the token goes as `bearer.<token>`.
    pub async fn websocket(&self, target: &str) -> Socket {
        self.handshake(target).accepted().await
    }

    /// A handshake to be changed before it is sent; the token goes as `bearer.<token>`.
    pub fn handshake(&self, target: &str) -> Handshake {
        let (address, target) = self.place(target);
        let handshake = Handshake::new(address, &target);
        let handshake = self.headers.iter().fold(handshake, |shake, (name, value)| shake.header(name, value));
        match &self.token {
            Some(token) => handshake.protocols(&[&format!("bearer.{token}")]),
            None => handshake,
        }
    }

    fn head(&self, method: &str, address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> String {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n");
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

    fn place(&self, target: &str) -> (SocketAddr, String) {
        if !target.starts_with("http://") {
            return (self.address, target.to_owned());
        }
        let url = Url::parse(target).expect("an address");
        let address = format!("{}:{}", url.host_str().expect("a host"), url.port_or_known_default().expect("a port"));
        let address = address.parse().unwrap_or_else(|_| panic!("{target} leads away from this machine"));
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        (address, format!("{}{query}", url.path()))
    }
}

/// Cookies as a browser keeps them: by name and path, gone when their time is up.
#[derive(Debug, Clone, Default)]
pub struct Jar {
    cookies: Vec<Cookie>,
}

#[derive(Debug, Clone)]
struct Cookie {
    name: String,
    value: String,
    path: String,
}

impl Jar {
    /// Takes over one `Set-Cookie`.
    pub fn keep(&mut self, line: &str) {
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

    /// Names and values, in the order in which they came.
    pub fn pairs(&self) -> Vec<(String, String)> {
        self.cookies.iter().map(|cookie| (cookie.name.clone(), cookie.value.clone())).collect()
    }

    /// Changes every value; for cookies that were tampered with.
    pub fn tampered(mut self, change: impl Fn(&str) -> String) -> Jar {
        for cookie in &mut self.cookies {
            cookie.value = change(&cookie.value);
        }
        self
    }

    /// Whether there are none.
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

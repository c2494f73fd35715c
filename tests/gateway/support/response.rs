//! An HTTP response and the checks of the contract's envelope.

use serde_json::Value;

/// A response as received.
#[derive(Debug, Clone)]
pub struct Response {
    /// The request line, for assertion messages.
    pub request_line: String,
    pub status: u16,
    /// Header lines in order, names as sent.
    pub headers: Vec<(String, String)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header; panics if the header is repeated.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.header_all(name);
        assert!(all.len() <= 1, "{name} occurs {} times in {}", all.len(), self.describe());
        all.first().copied()
    }

    /// All values of a header.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("no JSON ({error}) in {}", self.describe()),
        }
    }

    /// The envelope's `code`; panics without one.
    #[track_caller]
    pub fn code(&self) -> u64 {
        self.json()["code"].as_u64().unwrap_or_else(|| panic!("no code in {}", self.describe()))
    }

    /// The envelope's `data`.
    #[track_caller]
    pub fn data(&self) -> Value {
        self.json()["data"].clone()
    }

    /// The envelope's `message`.
    #[track_caller]
    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_else(|| panic!("no message in {}", self.describe())).to_owned()
    }

    /// Asserts the contract's envelope with this code and its HTTP status.
    #[track_caller]
    pub fn expect_code(self, code: u64) -> Response {
        let envelope = self.json();
        let members: Vec<&str> =
            envelope.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default();
        let mut sorted = members.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, ["code", "data", "message", "request_id"], "members of {}", self.describe());
        assert_eq!(envelope["code"], code, "code of {}", self.describe());
        assert_eq!(self.status, status_of(code), "status of {}", self.describe());
        assert!(
            envelope["message"].as_str().is_some_and(|message| !message.is_empty()),
            "message of {}",
            self.describe()
        );
        assert_eq!(code == 0, !envelope["data"].is_null(), "data of {}", self.describe());
        let content_type = self.header("content-type").unwrap_or_default();
        assert!(content_type.starts_with("application/json"), "content type of {}", self.describe());
        let request_id = envelope["request_id"].as_str().unwrap_or_default();
        assert!(!request_id.is_empty(), "request id of {}", self.describe());
        assert_eq!(self.header("x-request-id"), Some(request_id), "X-Request-Id of {}", self.describe());
        self
    }

    /// Asserts 1001 with a bare `Bearer` challenge: the request had no credentials (RFC 6750).
    #[track_caller]
    pub fn expect_bare_challenge(self) -> Response {
        let response = self.expect_code(1001);
        let challenge = response.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Bearer"), "challenge of {}", response.describe());
        assert!(!challenge.contains("error="), "RFC 6750 allows no error code here: {}", response.describe());
        response
    }

    /// Asserts 1001 with `error="invalid_token"`.
    #[track_caller]
    pub fn expect_invalid_token(self) -> Response {
        let response = self.expect_code(1001);
        let challenge = response.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Bearer"), "challenge of {}", response.describe());
        assert!(challenge.contains(r#"error="invalid_token""#), "challenge of {}", response.describe());
        response
    }

    /// Asserts the HTTP status.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Response {
        assert_eq!(self.status, status, "status of {}", self.describe());
        self
    }

    /// The `Location` of a redirect; panics on any other status.
    #[track_caller]
    pub fn location(&self) -> String {
        assert!(matches!(self.status, 302 | 303), "no redirect: {}", self.describe());
        self.header("location").unwrap_or_else(|| panic!("no Location in {}", self.describe())).to_owned()
    }

    /// The whole response, for assertion messages.
    pub fn describe(&self) -> String {
        let mut text = format!("the response to `{}`:\n{}\n", self.request_line, self.status);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text.push_str(&self.text().chars().take(2000).collect::<String>());
        text
    }
}

/// The HTTP status of a code in the contract's table. Written out, so that the gateway's own table is checked.
fn status_of(code: u64) -> u16 {
    match code {
        0 => 200,
        1001 | 1011 | 1021 | 1022 => 401,
        1003 | 1012 => 403,
        1005 => 500,
        1015 | 1016 => 400,
        other => u16::try_from(other % 1000).expect("three digits"),
    }
}

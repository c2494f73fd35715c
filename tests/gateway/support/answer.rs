//! One HTTP answer, and what the contract says of every one of ours.

use serde_json::Value;

/// An answer as it came over the wire.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The request line it answers, for messages.
    pub asked: String,
    /// The HTTP status.
    pub status: u16,
    /// Header lines in order, names as sent.
    pub headers: Vec<(String, String)>,
    /// The body, chunks joined.
    pub body: Vec<u8>,
}

impl Answer {
    /// The only value of a header; fails when it stands more than once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.header_all(name);
        assert!(all.len() <= 1, "{name} stands {} times in {}", all.len(), self.describe());
        all.first().copied()
    }

    /// Every value of a header.
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

    /// The envelope's `code`; fails on an answer without one.
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

    /// Fails unless this is exactly the contract's envelope with this code and the status that goes with it.
    #[track_caller]
    pub fn expect_code(self, code: u64) -> Answer {
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

    /// Fails unless this is the answer to somebody who sent no credentials: the bare challenge.
    #[track_caller]
    pub fn expect_bare_challenge(self) -> Answer {
        let answer = self.expect_code(1001);
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Bearer"), "challenge of {}", answer.describe());
        assert!(!challenge.contains("error="), "RFC 6750 wants no error code here: {}", answer.describe());
        answer
    }

    /// Fails unless this is the answer to a token that is not valid.
    #[track_caller]
    pub fn expect_invalid_token(self) -> Answer {
        let answer = self.expect_code(1001);
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert!(challenge.starts_with("Bearer"), "challenge of {}", answer.describe());
        assert!(challenge.contains(r#"error="invalid_token""#), "challenge of {}", answer.describe());
        answer
    }

    /// Fails unless the status is this one.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "status of {}", self.describe());
        self
    }

    /// Where a redirect leads; fails when this is none.
    #[track_caller]
    pub fn location(&self) -> String {
        assert!(matches!(self.status, 302 | 303), "no redirect: {}", self.describe());
        self.header("location").unwrap_or_else(|| panic!("no Location in {}", self.describe())).to_owned()
    }

    /// The whole answer for a failing test's message.
    pub fn describe(&self) -> String {
        let mut text = format!("the answer to `{}`:\n{}\n", self.asked, self.status);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text.push_str(&self.text().chars().take(2000).collect::<String>());
        text
    }
}

/// The HTTP status that the contract's table gives a code.
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

//! A gateway with a live session, to try forged tokens on.

use super::*;

/// A gateway, a live session and the gateway's signing key.
pub struct Fixture {
    pub desk: Gateway,
    pub xiaoming: Client,
    pub key: Signer,
    pub header: Value,
    pub claims: Value,
}

impl Fixture {
    pub async fn new() -> Fixture {
        Fixture::with("").await
    }

    pub async fn with(settings: &str) -> Fixture {
        let desk = Gateway::with(settings).await;
        let xiaoming = desk.sign_in("u1001").await;
        let key = Signer::of_gateway(&desk, xiaoming.token());
        let (header, claims) = (header_of(xiaoming.token()), claims_of(xiaoming.token()));
        Fixture { desk, xiaoming, key, header, claims }
    }

    /// The session's claims with one replaced.
    pub fn claims_with(&self, name: &str, value: Value) -> Value {
        let mut claims = self.claims.clone();
        claims[name] = value;
        claims
    }

    /// The session's claims without one of them.
    pub fn claims_without(&self, name: &str) -> Value {
        let mut claims = self.claims.clone();
        claims.as_object_mut().expect("an object").remove(name).expect("a claim");
        claims
    }

    /// The token's header with one member replaced or added.
    pub fn header_with(&self, name: &str, value: Value) -> Value {
        let mut header = self.header.clone();
        header[name] = value;
        header
    }

    /// The session's claims as text, with one as raw JSON.
    pub fn claims_raw(&self, name: &str, raw: &str) -> String {
        self.claims_with(name, json!("@raw@")).to_string().replace("\"@raw@\"", raw)
    }

    /// Signs with the gateway's key.
    pub fn signed(&self, header: &Value, claims: &Value) -> String {
        self.key.token(header, claims)
    }

    /// Asserts that the token is refused everywhere and that nothing reaches the upstream.
    pub async fn assert_refused(&self, case: &str, token: &str) {
        let slug: String = case.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        if token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let bearer = self.desk.with_token(token);
            bearer.get(&format!("/api/desk/{slug}")).await.expect_invalid_token();
            bearer.get("/api/auth/me").await.expect_invalid_token();
            match self
                .desk
                .anonymous()
                .handshake(&format!("/ws/employee?case={slug}"))
                .protocols(&[&format!("bearer.{token}")])
                .open()
                .await
            {
                Ok(_) => panic!("{case}: the handshake was accepted"),
                Err(response) => assert!(matches!(response.status, 400 | 401), "{case}: {}", response.describe()),
            }
        }
        self.assert_not_valid(case, token).await;
        assert!(self.desk.upstream.requests().is_empty(), "{case}: the request reached the upstream");
    }

    /// Asserts that `/api/auth/verify` answers `valid: false` without an identity.
    pub async fn assert_not_valid(&self, case: &str, token: &str) {
        let response = self.desk.anonymous().post_json("/api/auth/verify", &json!({ "token": token })).await;
        let data = response.expect_code(0).data();
        assert_eq!(data["valid"], false, "{case}: {data}");
        for member in ["employee_id", "name", "current_role", "login_source"] {
            assert!(data[member].as_str().unwrap_or_default().is_empty(), "{case}: {member} of {data}");
        }
    }

    /// Asserts that the session is still live, so that the refusals had another reason.
    pub async fn assert_session_live(&self) {
        self.xiaoming.get("/api/auth/me").await.expect_code(0);
    }
}

//! Signs clients in to a gateway.

use super::{Client, Gateway, Phone, fragment_parameter};

impl Gateway {
    /// A client without a token.
    pub fn anonymous(&self) -> Client {
        Client::new(self.server_address())
    }

    /// Signs an employee in through `/api/dev/login`.
    pub async fn sign_in(&self, employee_id: &str) -> Client {
        let anonymous = self.anonymous();
        let response = anonymous.post_json("/api/dev/login", &serde_json::json!({ "employee_id": employee_id })).await;
        let data = response.expect_code(0).data();
        anonymous.with_token(data["token"].as_str().expect("a token"))
    }

    /// Signs an employee in as `sign_in` does, an hour ago as far as the session's platform sign-in is concerned.
    pub async fn sign_in_an_hour_ago(&self, employee_id: &str) -> Client {
        let client = self.sign_in(employee_id).await;
        let url = format!("sqlite:{}", self.data_dir().join("state.db").display());
        let mut store = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("the store");
        // The gateway reads the record when the token is first used.
        let aged = sqlx::query(
            "UPDATE sessions SET body = json_set(body, '$.platform_sign_in_at', body ->> '$.platform_sign_in_at' - 3600000)
             WHERE id = $1",
        );
        let aged = aged.bind(super::jti_of(client.token())).execute(&mut store).await.expect("a change");
        assert_eq!(aged.rows_affected(), 1);
        client
    }

    /// A client with this token, valid or not.
    pub fn with_token(&self, token: &str) -> Client {
        self.anonymous().with_token(token)
    }

    /// The phone of a member of the simulated platform.
    pub fn phone(&self, userid: &str) -> Phone {
        Phone::new(self.anonymous(), userid)
    }

    /// Signs a member in by QR code: scan, confirm, poll.
    pub async fn sign_in_by_qrcode(&self, userid: &str) -> Client {
        let browser = self.anonymous();
        let ticket = browser.get("/api/auth/qrcode").await.expect_code(0).data();
        let phone = self.phone(userid);
        phone.scan_and_confirm(ticket["qrcode_url"].as_str().expect("a URL")).await;
        let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
        let state = browser.get(&poll).await.expect_code(0).data();
        assert_eq!(state["status"], "confirmed", "{state}");
        browser.with_token(state["token"].as_str().expect("a token"))
    }

    /// Signs a member in by OAuth2 redirect to this client: `h5`, `itagent` or `itadmin`.
    pub async fn sign_in_by_oauth2(&self, userid: &str, client: &str) -> Client {
        let phone = self.phone(userid);
        let response = phone.oauth2(&self.client_url(client)).await;
        let location = response.location();
        let token = fragment_parameter(&location, "token").unwrap_or_else(|| panic!("no token in {location}"));
        phone.client().with_token(&token)
    }
}

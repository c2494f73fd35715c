//! The switches of the simulated platform.

use serde_json::Value;

use super::{Client, Gateway};

impl Gateway {
    /// Sets switches of the simulated platform and resets all others.
    pub async fn set_platform_switches(&self, switches: Value) {
        let platform = Client::new(self.platform_address());
        platform.send("DELETE", "/simulator/switches", &[], b"").await;
        let json = [("Content-Type", "application/json")];
        let response = platform.send("PATCH", "/simulator/switches", &json, switches.to_string().as_bytes()).await;
        assert_eq!(response.status, 200, "{}", response.describe());
    }

    /// How often a path of the platform was called.
    pub async fn platform_calls(&self, path: &str) -> u64 {
        let calls = Client::new(self.platform_address()).get("/simulator/calls").await.text();
        let calls: Value = serde_json::from_str(&calls).expect("JSON");
        calls[path].as_u64().unwrap_or(0)
    }
}

//! `[clients]`: the three web clients and their addresses.

use serde::{Deserialize, Serialize};
use url::Url;

use super::Faults;
use super::server::local_url;
use crate::domain::client::Client;

/// `[clients]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientsConfig {
    /// The employee client. Browsers are sent back only to addresses under one of these three.
    pub h5: Url,
    /// The agent client.
    pub itagent: Url,
    /// The administration client.
    pub itadmin: Url,
}

impl Default for ClientsConfig {
    fn default() -> Self {
        Self {
            h5: local_url("http://127.0.0.1:8080/h5/"),
            itagent: local_url("http://127.0.0.1:8080/itagent/"),
            itadmin: local_url("http://127.0.0.1:8080/itadmin/"),
        }
    }
}

impl ClientsConfig {
    /// A client's address.
    pub fn url(&self, client: Client) -> &Url {
        match client {
            Client::H5 => &self.h5,
            Client::Itagent => &self.itagent,
            Client::Itadmin => &self.itadmin,
        }
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        for client in Client::ALL {
            let url = self.url(client);
            let key = format!("clients.{}", client.as_str());
            if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
                faults.add(&key, "must be an http or https address");
            }
            if !url.path().ends_with('/') {
                faults.add(&key, "must end with a slash, so that /h5 does not let in /h5evil");
            }
            if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
                faults.add(&key, "must have no query, fragment or user");
            }
        }
    }
}

//! `[clients]`: the URLs of the three web clients.

use serde::{Deserialize, Serialize};
use url::Url;

use super::Faults;
use super::server::local_url;
use super::values;
use crate::domain::client::Client;

/// `[clients]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientsConfig {
    /// The employee client. Sign-in redirects only to URLs under one of these three.
    #[serde(deserialize_with = "values::url")]
    pub h5: Url,
    /// The agent client.
    #[serde(deserialize_with = "values::url")]
    pub itagent: Url,
    /// The administration client.
    #[serde(deserialize_with = "values::url")]
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
    /// The URL of a client.
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
                faults.add(&key, format!("\"{url}\" is not an http or https URL"));
            }
            if !url.path().ends_with('/') {
                let why =
                    format!("\"{url}\" must end with a slash, or redirects to \"{url}.evil.example\" would be allowed");
                faults.add(&key, why);
            }
            if url.query().is_some() || url.fragment().is_some() || values::has_credentials(url) {
                faults.add(&key, format!("\"{url}\" must not have a query, a fragment, a user name or a password"));
            }
        }
    }
}

//! `[clients]`: the three web clients and their addresses.

use serde::{Deserialize, Serialize};
use url::Url;

use super::Faults;
use super::server::local_url;
use crate::domain::role::RoleName;
use crate::domain::session::LoginSource;

/// One of the three web clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Client {
    /// Employees.
    H5,
    /// Support staff.
    Itagent,
    /// Administrators.
    Itadmin,
}

impl Client {
    /// All three.
    pub const ALL: [Client; 3] = [Client::H5, Client::Itagent, Client::Itadmin];

    /// As configuration, queries and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Client::H5 => "h5",
            Client::Itagent => "itagent",
            Client::Itadmin => "itadmin",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Client> {
        Client::ALL.into_iter().find(|client| client.as_str() == name)
    }

    /// The client whose page suits a role.
    pub fn of_role(role: &RoleName) -> Client {
        match role.as_str() {
            "admin" => Client::Itadmin,
            "agent" | "supervisor" | "security" => Client::Itagent,
            _ => Client::H5,
        }
    }

    /// What a session that began there says of itself.
    pub fn login_source(self) -> LoginSource {
        match self {
            Client::H5 => LoginSource::H5,
            Client::Itagent => LoginSource::Itagent,
            Client::Itadmin => LoginSource::Itadmin,
        }
    }
}

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

//! The three web clients.

use serde::{Deserialize, Serialize};

use super::role::RoleName;
use super::session::LoginSource;

/// One of the three web clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Client {
    /// The employee client.
    H5,
    /// The agent client.
    Itagent,
    /// The administration client.
    Itadmin,
}

impl Client {
    /// All clients.
    pub const ALL: [Client; 3] = [Client::H5, Client::Itagent, Client::Itadmin];

    /// The name in the configuration, in queries and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Client::H5 => "h5",
            Client::Itagent => "itagent",
            Client::Itadmin => "itadmin",
        }
    }

    /// Parses the name.
    pub fn named(name: &str) -> Option<Client> {
        Client::ALL.into_iter().find(|client| client.as_str() == name)
    }

    /// The client that a role works with.
    pub fn of_role(role: &RoleName) -> Client {
        match role.as_str() {
            "admin" => Client::Itadmin,
            "agent" | "supervisor" | "security" => Client::Itagent,
            _ => Client::H5,
        }
    }

    /// The `login_source` of sessions that began at this client.
    pub fn login_source(self) -> LoginSource {
        match self {
            Client::H5 => LoginSource::H5,
            Client::Itagent => LoginSource::Itagent,
            Client::Itadmin => LoginSource::Itadmin,
        }
    }
}

//! The three web clients.

use serde::{Deserialize, Serialize};

use super::role::RoleName;
use super::session::LoginSource;

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

//! The settings that the pages and the API description show.

use crate::config::{ClientsConfig, PlatformKind};

/// The public addresses and the platform of this gateway.
#[derive(Debug, Clone)]
pub struct Site {
    /// The URL under which browsers reach the gateway, without a trailing slash.
    pub public_url: String,
    /// The URLs of the web clients.
    pub clients: ClientsConfig,
    /// The messaging platform.
    pub platform: PlatformKind,
}

//! `GET /version`

use serde::Serialize;

use crate::domain::clock::Timestamp;

/// The running build.
#[derive(Debug, Serialize)]
pub struct VersionInfo {
    name: &'static str,
    version: &'static str,
    commit: &'static str,
    built_at: String,
}

/// Describes the running build.
pub fn version() -> VersionInfo {
    let built = env!("DESKGATE_BUILT").parse().unwrap_or(0);
    VersionInfo {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("DESKGATE_COMMIT"),
        built_at: Timestamp::from_seconds(built).iso8601(),
    }
}

//! Why the gateway cannot start.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::directory::DirectoryError;
use crate::platform::PlatformError;
use crate::rules::RuleFault;
use crate::store::StoreError;
use crate::token::ring::KeyFault;

/// Why the gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartFault {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The data directory cannot be used.
    #[error("{path}: {source}")]
    Data {
        /// Which path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another process works with the same data.
    #[error("{0}: another deskgate is using this data directory; stop it or choose another server.data_dir")]
    Locked(PathBuf),
    /// The directory holds something else.
    #[error("{0}: is not empty and not deskgate's; choose another server.data_dir")]
    NotOurs(PathBuf),
    /// A command finds no directory.
    #[error(
        "{0}: there is none; no gateway has run with this server.data_dir (a relative one begins at the current folder). \
         If it is the right one, make it first: mkdir -m 700"
    )]
    NoData(PathBuf),
    /// A command would leave files behind that the gateway cannot read.
    #[error("{path}: belongs to user {owner}, and no gateway runs that could be asked; run this as that user")]
    OthersData {
        /// Which.
        path: PathBuf,
        /// Whose.
        owner: u32,
    },
    /// The store cannot be opened.
    #[error("{path}: {source}{}", causes(.source))]
    Store {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// The directory cannot be opened.
    #[error("{path}: {source}{}", causes(.source))]
    Directory {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: DirectoryError,
    },
    /// The keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyFault),
    /// The certificate cannot be used.
    #[error("server.tls: {0}")]
    Tls(String),
    /// The build has no simulated platform.
    #[error(
        "platform.kind: this build has no simulated platform; build with the cargo feature `demo` \
         or set platform.kind = \"wecom\""
    )]
    NoSimulator,
    /// The platform cannot be set up.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The rules are not sound.
    #[error("{}", lines(.0))]
    Rules(Vec<RuleFault>),
    /// The metrics cannot be declared.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

fn lines(faults: &[RuleFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

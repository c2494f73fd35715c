//! Errors that keep the gateway from starting or reloading, worded for the operator. The CLI prints them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::admin::keys::KeyError;
use crate::config::ConfigFault;
use crate::directory::DirectoryError;
use crate::error::chain;
use crate::platform::PlatformError;
use crate::rules::RuleFault;
use crate::store::StoreError;
use crate::upstreams::tls::UpstreamTlsFault;

/// Why the gateway cannot start or reload.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum StartError {
    #[error("cannot listen on {address}: {source}; set {key} to an address that is free on this machine")]
    Listen {
        /// The setting that names the address.
        key: &'static str,
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("{}: {source}", .path.display())]
    Data {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "the limit on open files is {limit}, and the gateway itself needs {reserve} of them: too few are left for clients; \
         raise it, if possible to {needed} (ulimit -n, LimitNOFILE=)"
    )]
    Descriptors { limit: usize, reserve: usize, needed: usize },
    #[error("cannot take over from the running gateway, which goes on: {0}")]
    HandOver(String),
    #[error(
        "{}: another deskgate is using this data directory; stop it, run `deskgate serve --upgrade` to replace it, \
         or set another server.data_dir",
        .0.display()
    )]
    Locked(PathBuf),
    #[error(
        "{}: the directory is not empty and not deskgate's; set server.data_dir to an empty or new directory",
        .0.display()
    )]
    ForeignData(PathBuf),
    #[error(
        "{path}: does not exist; no gateway has run with this server.data_dir (a relative path starts at the \
         folder of the configuration file). If the path is right, create it first: mkdir -m 700 {path}",
        path = .0.display()
    )]
    NoData(PathBuf),
    /// Files that the command created would be unreadable for the gateway's user.
    #[error(
        "{}: belongs to user {owner}; run the command as that user, so that the gateway can use the files",
        .path.display()
    )]
    DataOwner { path: PathBuf, owner: u32 },
    #[error("{place}: {}", chain(.source))]
    Store { place: String, source: StoreError },
    #[error("{place}: {}", chain(.source))]
    Directory { place: String, source: DirectoryError },
    #[error("{0}: the copy to this directory is not complete; run `deskgate store copy` again")]
    UnfinishedCopy(String),
    #[error("{}", chain(.0))]
    Keys(#[from] KeyError),
    #[error("{key}: {source}")]
    SecretFile {
        /// The setting that names the file.
        key: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("{key}: {why}")]
    Tls {
        /// The setting that names the file.
        key: String,
        why: String,
    },
    /// A file of TLS to an upstream.
    #[error(transparent)]
    UpstreamTls(#[from] UpstreamTlsFault),
    /// The build has no simulated platform.
    #[error(
        "platform.kind: this build has no simulated platform; build with the cargo feature `demo` \
         or set platform.kind = \"wecom\""
    )]
    NoSimulator,
    #[error(transparent)]
    Platform(#[from] PlatformError),
    #[error("{}", lines(.0))]
    Rules(Vec<RuleFault>),
    #[error("{}", lines(.0))]
    Config(Vec<ConfigFault>),
    #[error("traces.endpoint: {0}")]
    Traces(String),
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// A [`StartError::Data`] of this path.
pub(super) fn data_error(path: &Path) -> impl Fn(std::io::Error) -> StartError {
    move |source| StartError::Data { path: path.to_owned(), source }
}

fn lines(faults: &[impl ToString]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

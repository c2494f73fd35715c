//! Opens the backends of two configurations and copies what the first ones hold to the second ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::backends::{self, STORE_FILE, directory_file, directory_place, store_place};
use super::secrets::{self, FleetSecrets};
use super::wire::{self, issuer};
use super::{DataLock, StartError};
use crate::admin::copy::{CopiedPart, CopyError, CopyReport, CopySide, ReportProgress, StateCopy};
use crate::config::Config;
use crate::directory::Directory;
use crate::domain::clock::Clock;
use crate::domain::employee::EmployeeSource;
use crate::metrics::Metrics;
use crate::store::Store;

/// Why a copy was not begun, or not completed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum CopyRefusal {
    #[error("both configurations use the same store and directory; there is nothing to copy")]
    SameState,
    #[error(
        "server.public_url is {from} at the source and {to} at the target: every copied token would be refused; use the same \
         URL in both configurations"
    )]
    OtherIssuer { from: String, to: String },
    #[error("directory.employees = \"views\": employees, roles and agents are the help desk's and cannot be copied")]
    Views,
    #[error("{}: a gateway or a command is using this data directory; stop it and copy again", .0.display())]
    Locked(PathBuf),
    #[error("{}: does not exist; no gateway has run with the configuration to copy from", .0.display())]
    NoSource(PathBuf),
    #[error(transparent)]
    Open(StartError),
    #[error(transparent)]
    Copy(#[from] CopyError),
}

impl CopyRefusal {
    /// Whether the operator must change something first; otherwise a backend failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Open(_) => false,
            Self::Copy(error) => error.is_refusal(),
            _ => true,
        }
    }
}

impl From<StartError> for CopyRefusal {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Locked(path) => Self::Locked(path),
            error => Self::Open(error),
        }
    }
}

/// Copies sessions, directory and signing keys from one configuration's backends to another's. `None` for `report`: only
/// counts them.
pub async fn copy_state(
    from: &Config,
    to: &Config,
    report: Option<ReportProgress<'_>>,
) -> Result<CopyReport, CopyRefusal> {
    check(from, to)?;
    let _locks = lock(&[from, to])?;
    let copy = open(from, to).await?;
    let copied = match report {
        Some(report) => copy.run(report).await,
        None => copy.rehearse().await,
    };
    for side in [&copy.from, &copy.to] {
        side.store.close().await;
        side.directory.close().await;
    }
    Ok(copied?)
}

fn check(from: &Config, to: &Config) -> Result<(), CopyRefusal> {
    if store_part(from, to) == CopiedPart::Same && directory_part(from, to) == CopiedPart::Same {
        return Err(CopyRefusal::SameState);
    }
    if [from, to].iter().any(|config| config.directory.employees == EmployeeSource::Views) {
        return Err(CopyRefusal::Views);
    }
    if issuer(from) != issuer(to) {
        return Err(CopyRefusal::OtherIssuer { from: issuer(from), to: issuer(to) });
    }
    // Opening them would create them.
    let store = (!from.store.is_shared()).then(|| from.server.data_dir.join(STORE_FILE));
    match store.into_iter().chain(directory_file(from)).find(|file| !file.exists()) {
        Some(missing) => Err(CopyRefusal::NoSource(missing)),
        None => Ok(()),
    }
}

/// Locks the data directories that hold something: a gateway that uses one is running, or may not start meanwhile.
fn lock(configs: &[&Config]) -> Result<Vec<DataLock>, StartError> {
    let used = configs.iter().filter(|config| config.uses_data_dir()).map(|config| config.server.data_dir.as_path());
    let mut folders: Vec<&Path> = Vec::new();
    for folder in used {
        if !folders.iter().any(|other| is_same_file(other, folder)) {
            folders.push(folder);
        }
    }
    folders.into_iter().map(DataLock::acquire_for_command).collect()
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

fn store_part(from: &Config, to: &Config) -> CopiedPart {
    let is_same = match (from.store.is_shared(), to.store.is_shared()) {
        (true, true) => from.store.url == to.store.url && from.store.prefix == to.store.prefix,
        (false, false) => is_same_file(&from.server.data_dir, &to.server.data_dir),
        _ => false,
    };
    if is_same { CopiedPart::Same } else { CopiedPart::Copied }
}

fn directory_part(from: &Config, to: &Config) -> CopiedPart {
    let is_same = match (directory_file(from), directory_file(to)) {
        (Some(from), Some(to)) => is_same_file(&from, &to),
        (None, None) => directory_place(from) == directory_place(to),
        _ => false,
    };
    if is_same { CopiedPart::Same } else { CopiedPart::Copied }
}

async fn open(from: &Config, to: &Config) -> Result<StateCopy, CopyRefusal> {
    let (clock, metrics) = (Clock::system(), Arc::new(Metrics::new().map_err(StartError::from)?));
    let (store, directory) = (store_part(from, to), directory_part(from, to));
    let source_store = backends::open_store(from, &clock, &metrics).await?;
    let target_store = match store {
        CopiedPart::Same => source_store.clone(),
        CopiedPart::Copied => backends::open_store(to, &clock, &metrics).await?,
    };
    let source_directory = open_directory(from, &clock).await?;
    let target_directory = match directory {
        CopiedPart::Same => source_directory.clone(),
        CopiedPart::Copied => open_directory(to, &clock).await?,
    };
    Ok(StateCopy {
        from: side(from, source_store, source_directory).await?,
        to: side(to, target_store, target_directory).await?,
        store,
        directory,
    })
}

/// Opens a directory as it is, complete or not, without development data.
async fn open_directory(config: &Config, clock: &Clock) -> Result<Arc<dyn Directory>, StartError> {
    Ok(Arc::new(backends::open_sql_directory(config, clock).await?))
}

async fn side(config: &Config, store: Arc<dyn Store>, directory: Arc<dyn Directory>) -> Result<CopySide, StartError> {
    let secrets = FleetSecrets::read(&config.server)?;
    Ok(CopySide {
        store,
        store_place: store_place(config),
        directory_place: directory_place(config),
        vault: secrets::vault(config, secrets.as_ref())?,
        keys: wire::key_storage(config, secrets.as_ref(), &directory).await?,
        directory,
    })
}

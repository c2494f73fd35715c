//! Copies sessions, directory and signing keys from one configuration's backends to another's, so that every token that is
//! valid before is valid after, and no other.
//!
//! No gateway uses either side meanwhile. A copy can be repeated at any time: the rows of the directory are removed and copied
//! again, keys and sessions that are there already stay. The target's directory says that the copy is not complete until
//! everything was counted, and no gateway starts on it before.
//!
//! Denials come before sessions, so that no token is valid on the target that is not on the source. Tickets and single-use
//! claims are left out: they live for minutes, and a sign-in that is in progress has to be started again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::keys::{KeyError, KeyStorage, copy_keys};
use crate::directory::copy::{CopiedRow, CopiedTable, CopiedValue, CopyRun, CopyState};
use crate::directory::factors::Account;
use crate::directory::{Directory, DirectoryError};
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::session::SessionId;
use crate::domain::write::WriteOutcome;
use crate::error::chain;
use crate::signin::devices;
use crate::store::transfer::{ImportCounts, PortableSession};
use crate::store::{SessionCursor, Store, StoreError};
use crate::token::vault::Vault;

mod report;

pub use report::{CopyProgress, CopyReport, RecordCount, ReportProgress};

/// How many sessions, denials or rows are read and written at once.
const PAGE: usize = 2000;

/// How long a copy waits for a store that does not answer, and between two attempts.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(250);

/// The columns of a one-time-password device: its owner, and the secrets that are encrypted.
const OTP_OWNER: (usize, usize) = (0, 1);
const OTP_SECRETS: [usize; 2] = [2, 3];

const SESSIONS: &str = "sessions";
const DENIALS: &str = "denied tokens";
const KEYS: &str = "signing keys";

/// Why a copy was not made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum CopyError {
    #[error("{place}: {}", chain(.source))]
    Store { place: String, source: StoreError },
    #[error("{place}: {}", chain(.source))]
    Directory { place: String, source: DirectoryError },
    #[error("{}", chain(.0))]
    Keys(#[from] KeyError),
    #[error(
        "{place}: gateways are using it ({gateways}); stop all of them and copy again (a gateway that was killed is listed \
         for 10 seconds)"
    )]
    InUse { place: String, gateways: String },
    #[error("{0}: the copy to this directory is not complete; complete it, or copy from its source")]
    UnfinishedSource(String),
    #[error("{place}: is not empty ({count} {label}); copy to an empty database or data directory")]
    NotEmpty { place: String, count: usize, label: &'static str },
    #[error("{0}: another copy to this directory has begun; this one has stopped")]
    Replaced(String),
}

impl CopyError {
    /// Whether the operator must change something first; otherwise a backend failed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::InUse { .. } | Self::UnfinishedSource(_) | Self::NotEmpty { .. } | Self::Replaced(_) => true,
            Self::Keys(error) => matches!(error, KeyError::OtherKeys(_)),
            Self::Store { .. } | Self::Directory { .. } => false,
        }
    }
}

/// The backends of one configuration.
pub struct CopySide {
    /// Sessions and denials.
    pub store: Arc<dyn Store>,
    /// The store in messages, without credentials.
    pub store_place: String,
    /// The directory.
    pub directory: Arc<dyn Directory>,
    /// The directory in messages, without credentials.
    pub directory_place: String,
    /// What encrypts one-time-password secrets.
    pub vault: Arc<Vault>,
    /// The signing keys.
    pub keys: KeyStorage,
}

/// Whether a part differs between source and target, so that it is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedPart {
    /// Source and target are the same.
    Same,
    /// It is copied.
    Copied,
}

/// A copy from one configuration's backends to another's.
pub struct StateCopy {
    /// The source.
    pub from: CopySide,
    /// The target.
    pub to: CopySide,
    /// Sessions and denials.
    pub store: CopiedPart,
    /// The directory.
    pub directory: CopiedPart,
}

impl StateCopy {
    /// Copies everything and counts it on both sides. Gateways can use the target only if nothing is missing.
    pub async fn run(&self, report: ReportProgress<'_>) -> Result<CopyReport, CopyError> {
        self.require_idle().await?;
        let run = CopyRun::new();
        if self.directory == CopiedPart::Copied {
            self.begin(&run).await?;
        }
        copy_keys(&self.from.keys, &self.to.keys).await?;
        if self.store == CopiedPart::Copied {
            self.copy_denials(report).await?;
        }
        let mut undecryptable = 0;
        if self.directory == CopiedPart::Copied {
            for table in CopiedTable::ALL {
                undecryptable += self.copy_table(&run, table, report).await?;
            }
        }
        let mut imported = ImportCounts::default();
        if self.store == CopiedPart::Copied {
            imported = self.copy_sessions(report).await?;
        }
        let report = CopyReport { undecryptable, ..self.count(imported.denied).await? };
        self.require_idle().await?;
        if self.directory == CopiedPart::Copied && report.missing().is_empty() {
            let finished = self.to.directory.finish_copy(&run).await.map_err(|error| self.to.directory_error(error))?;
            self.require_current(finished)?;
        }
        Ok(report)
    }

    /// Checks what [`StateCopy::run`] checks before it begins, and counts both sides. Copies nothing.
    pub async fn rehearse(&self) -> Result<CopyReport, CopyError> {
        self.require_idle().await?;
        if self.directory == CopiedPart::Copied && self.to.copy_state().await? == CopyState::Own {
            self.require_empty_target().await?;
        }
        self.count(0).await
    }

    async fn require_idle(&self) -> Result<(), CopyError> {
        for side in [&self.from, &self.to] {
            let gateways = side.store.gateways().await.map_err(|error| side.store_error(error))?;
            if !gateways.is_empty() {
                let names: Vec<String> = gateways.iter().map(|one| format!("{} {}", one.host, one.listen)).collect();
                return Err(CopyError::InUse { place: side.store_place.clone(), gateways: names.join(", ") });
            }
        }
        match self.from.copy_state().await? {
            CopyState::Unfinished => Err(CopyError::UnfinishedSource(self.from.directory_place.clone())),
            CopyState::Own | CopyState::Complete => Ok(()),
        }
    }

    async fn begin(&self, run: &CopyRun) -> Result<(), CopyError> {
        let begun = self.to.directory.begin_copy(run).await.map_err(|error| self.to.directory_error(error))?;
        if begun == WriteOutcome::Applied {
            return Ok(());
        }
        self.require_empty_target().await?;
        // Only signing keys are left.
        let (place, count) = (self.to.directory_place.clone(), self.to.keys.count().await?);
        Err(CopyError::NotEmpty { place, count, label: KEYS })
    }

    async fn require_empty_target(&self) -> Result<(), CopyError> {
        for table in CopiedTable::ALL {
            let count = self.to.count_rows(table).await?;
            if count > 0 {
                let place = self.to.directory_place.clone();
                return Err(CopyError::NotEmpty { place, count, label: table.label() });
            }
        }
        Ok(())
    }

    /// Another run of the copy may have begun and removed what this one has written.
    fn require_current(&self, outcome: WriteOutcome) -> Result<(), CopyError> {
        match outcome {
            WriteOutcome::Applied => Ok(()),
            WriteOutcome::Conflict => Err(CopyError::Replaced(self.to.directory_place.clone())),
        }
    }

    async fn copy_denials(&self, report: ReportProgress<'_>) -> Result<(), CopyError> {
        let total = self.from.count_denials().await?;
        let (mut after, mut done): (Option<SessionCursor>, usize) = (None, 0);
        loop {
            let page = self.from.ask_store(async |store| store.denials(after.as_ref(), PAGE).await).await?;
            self.to.ask_store(async |store| store.import_denials(&page.denials).await).await?;
            done += page.denials.len();
            report(CopyProgress { label: DENIALS, done: done.min(total), total });
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Copies a table, and returns how many one-time-password secrets of it cannot be decrypted.
    async fn copy_table(
        &self,
        run: &CopyRun,
        table: CopiedTable,
        report: ReportProgress<'_>,
    ) -> Result<usize, CopyError> {
        let (from, to) = (&self.from, &self.to);
        let total = from.count_rows(table).await?;
        let (mut after, mut done, mut undecryptable) = (None, 0, 0);
        loop {
            let page = from.directory.rows(table, after.as_ref(), PAGE).await;
            let mut page = page.map_err(|error| from.directory_error(error))?;
            if table == CopiedTable::OtpDevices {
                undecryptable += page.rows.iter_mut().map(|row| self.encrypt_again(row)).sum::<usize>();
            }
            let inserted = to.directory.insert_rows(run, table, &page.rows).await;
            self.require_current(inserted.map_err(|error| to.directory_error(error))?)?;
            done += page.rows.len();
            report(CopyProgress { label: table.label(), done, total });
            after = page.next;
            if after.is_none() {
                return Ok(undecryptable);
            }
        }
    }

    /// Encrypts the secrets of a device for the target, and returns how many cannot be decrypted.
    fn encrypt_again(&self, row: &mut CopiedRow) -> usize {
        let owner = |column| row.text(column).unwrap_or_default();
        let (corp_id, employee_id) = (CorpId::new(owner(OTP_OWNER.0)), EmployeeId::new(owner(OTP_OWNER.1)));
        let account = Account { corp_id: &corp_id, employee_id: &employee_id };
        let mut undecryptable = 0;
        for column in OTP_SECRETS {
            let Some(encrypted) = row.text(column) else { continue };
            match devices::encrypt_again(&self.from.vault, &self.to.vault, account, encrypted) {
                Some(again) => row.values[column] = CopiedValue::Text(Some(again)),
                None => undecryptable += 1,
            }
        }
        undecryptable
    }

    async fn copy_sessions(&self, report: ReportProgress<'_>) -> Result<ImportCounts, CopyError> {
        let total = self.from.count_sessions().await?;
        let (mut counts, mut done) = (ImportCounts::default(), 0);
        let (mut sessions, mut next) = self.from.read_sessions(None).await?;
        loop {
            // The next page is read while this one is written.
            let import = self.to.ask_store(async |store| store.import_sessions(&sessions).await);
            let read = async {
                match &next {
                    Some(after) => self.from.read_sessions(Some(after)).await.map(Some),
                    None => Ok(None),
                }
            };
            let (imported, following) = futures::try_join!(import, read)?;
            counts += imported;
            done += sessions.len();
            report(CopyProgress { label: SESSIONS, done, total: total.max(done) });
            match following {
                Some(page) => (sessions, next) = page,
                None => return Ok(counts),
            }
        }
    }

    /// Counts both sides, the target first: what expires meanwhile is missing at the source, not at the target.
    async fn count(&self, ended: usize) -> Result<CopyReport, CopyError> {
        let mut counts = Vec::new();
        if self.store == CopiedPart::Copied {
            let (target, source) = (self.to.count_sessions().await?, self.from.count_sessions().await?);
            counts.push(RecordCount { kind: SESSIONS, source, target, ended });
            let (target, source) = (self.to.count_denials().await?, self.from.count_denials().await?);
            counts.push(RecordCount { kind: DENIALS, source, target, ended: 0 });
        }
        if self.directory == CopiedPart::Copied {
            for table in CopiedTable::ALL {
                let (target, source) = (self.to.count_rows(table).await?, self.from.count_rows(table).await?);
                counts.push(RecordCount { kind: table.label(), source, target, ended: 0 });
            }
        }
        let (target, source) = (self.to.keys.count().await?, self.from.keys.count().await?);
        counts.push(RecordCount { kind: KEYS, source, target, ended: 0 });
        Ok(CopyReport { counts, undecryptable: 0 })
    }
}

impl CopySide {
    fn store_error(&self, source: StoreError) -> CopyError {
        CopyError::Store { place: self.store_place.clone(), source }
    }

    /// Asks the store, and again while it does not answer: a pause of a server must not end a long copy. Everything that a
    /// copy asks can be repeated.
    async fn ask_store<T>(&self, ask: impl AsyncFn(&dyn Store) -> Result<T, StoreError>) -> Result<T, CopyError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ask(self.store.as_ref()).await {
                Err(StoreError::Unavailable(_)) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
                answer => return answer.map_err(|error| self.store_error(error)),
            }
        }
    }

    fn directory_error(&self, source: DirectoryError) -> CopyError {
        CopyError::Directory { place: self.directory_place.clone(), source }
    }

    async fn copy_state(&self) -> Result<CopyState, CopyError> {
        self.directory.copy_state().await.map_err(|error| self.directory_error(error))
    }

    async fn count_rows(&self, table: CopiedTable) -> Result<usize, CopyError> {
        self.directory.count_rows(table).await.map_err(|error| self.directory_error(error))
    }

    async fn read_sessions(
        &self,
        after: Option<&SessionCursor>,
    ) -> Result<(Vec<PortableSession>, Option<SessionCursor>), CopyError> {
        let page = self.ask_store(async |store| store.page(after, PAGE).await).await?;
        let ids: Vec<SessionId> = page.sessions.iter().map(|session| session.id.clone()).collect();
        let last_seen = self.ask_store(async |store| store.last_seen(&ids).await).await?;
        let sessions = page.sessions.into_iter().zip(last_seen);
        Ok((sessions.map(|(session, last_seen)| PortableSession { session, last_seen }).collect(), page.next))
    }

    async fn count_sessions(&self) -> Result<usize, CopyError> {
        let (mut after, mut count) = (None, 0);
        loop {
            let page = self.ask_store(async |store| store.page(after.as_ref(), PAGE).await).await?;
            count += page.sessions.len();
            after = page.next;
            if after.is_none() {
                return Ok(count);
            }
        }
    }

    async fn count_denials(&self) -> Result<usize, CopyError> {
        // A shared store may name one twice.
        let (mut after, mut ids) = (None, HashSet::new());
        loop {
            let page = self.ask_store(async |store| store.denials(after.as_ref(), PAGE).await).await?;
            ids.extend(page.denials.into_iter().map(|denial| denial.id));
            after = page.next;
            if after.is_none() {
                return Ok(ids.len());
            }
        }
    }
}

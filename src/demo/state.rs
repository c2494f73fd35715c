//! The mutable state of the simulated platform: switches, issued credentials, scans and call counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use self::credentials::{AuthCodes, IssuedTokens};
use super::link::CallbackTarget;
use super::members::Application;
use super::switches::Switches;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::secret::random_name;

pub mod credentials;

/// The state that all requests share.
#[derive(Clone)]
pub struct SharedState(Arc<Inner>);

struct Inner {
    platform: Mutex<PlatformState>,
    scan_changed: Notify,
}

impl SharedState {
    pub fn new(state: PlatformState) -> Self {
        Self(Arc::new(Inner { platform: Mutex::new(state), scan_changed: Notify::new() }))
    }

    pub fn lock(&self) -> MutexGuard<'_, PlatformState> {
        self.0.platform.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes pollers when the status of a scan may have changed.
    pub fn scan_changed(&self) -> &Notify {
        &self.0.scan_changed
    }
}

pub struct PlatformState {
    clock: Clock,
    /// Scheme, host and port of this server.
    pub origin: String,
    pub switches: Switches,
    pub tokens: IssuedTokens,
    pub codes: AuthCodes,
    pub scans: Scans,
    pub calls: CallCounts,
}

impl PlatformState {
    pub fn new(clock: Clock, origin: String) -> Self {
        Self {
            clock,
            origin,
            switches: Switches::default(),
            tokens: IssuedTokens::default(),
            codes: AuthCodes::default(),
            scans: Scans::default(),
            calls: CallCounts::default(),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The clock that tokens, codes and scans expire by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads or changes switches. A changed `frequency_limit` restarts its windows.
    pub fn update_switches<T>(&mut self, change: impl FnOnce(&mut Switches) -> T) -> T {
        let limit = self.switches.frequency_limit;
        let result = change(&mut self.switches);
        if self.switches.frequency_limit != limit {
            self.calls.reset_windows();
        }
        result
    }
}

/// Lifetime of a QR code on the hosted sign-in page. WeCom does not document its own.
const SCAN_LIFETIME: Duration = Duration::from_secs(300);

/// The status of a scan, with the platform's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanStatus {
    /// The code is on screen.
    Never,
    /// A phone has opened it.
    Scanning,
    /// Approved, with the authorization code.
    Succeeded(String),
    /// Declined.
    Failed,
    /// Expired or unknown.
    Error,
}

impl ScanStatus {
    /// The name in the poll's response.
    pub fn as_str(&self) -> &'static str {
        match self {
            ScanStatus::Never => "QRCODE_SCAN_NEVER",
            ScanStatus::Scanning => "QRCODE_SCAN_ING",
            ScanStatus::Succeeded(_) => "QRCODE_SCAN_SUCC",
            ScanStatus::Failed => "QRCODE_SCAN_FAIL",
            ScanStatus::Error => "QRCODE_SCAN_ERR",
        }
    }
}

/// The sign-in that a scan belongs to.
#[derive(Debug, Clone)]
pub struct HostedSignIn {
    pub callback: CallbackTarget,
    pub application: &'static Application,
}

struct Scan {
    sign_in: HostedSignIn,
    status: ScanStatus,
    expires_at: Timestamp,
}

/// The QR codes of the hosted sign-in page.
#[derive(Default)]
pub struct Scans {
    scans: HashMap<String, Scan>,
}

impl Scans {
    /// Starts a scan and returns its key.
    pub fn start(&mut self, sign_in: HostedSignIn, now: Timestamp) -> String {
        self.scans.retain(|_, scan| now < scan.expires_at);
        let key = random_name(22);
        let scan = Scan { sign_in, status: ScanStatus::Never, expires_at: now.plus(SCAN_LIFETIME) };
        self.scans.insert(key.clone(), scan);
        key
    }

    pub fn status(&self, key: &str, now: Timestamp) -> ScanStatus {
        self.live(key, now).map_or(ScanStatus::Error, |scan| scan.status.clone())
    }

    /// The sign-in of a scan that has not expired.
    pub fn sign_in(&self, key: &str, now: Timestamp) -> Option<&HostedSignIn> {
        self.live(key, now).map(|scan| &scan.sign_in)
    }

    /// Sets the status, unless the scan was already approved or declined.
    pub fn set_status(&mut self, key: &str, status: ScanStatus) {
        if let Some(scan) = self.scans.get_mut(key)
            && matches!(scan.status, ScanStatus::Never | ScanStatus::Scanning)
        {
            scan.status = status;
        }
    }

    fn live(&self, key: &str, now: Timestamp) -> Option<&Scan> {
        self.scans.get(key).filter(|scan| now < scan.expires_at)
    }
}

/// The window of `frequency_limit`, and how long a path is blocked once it is exceeded.
const MINUTE: Duration = Duration::from_secs(60);

struct CallWindow {
    ends_at: Timestamp,
    calls: u64,
    blocked: bool,
}

/// Counts calls per path.
#[derive(Default)]
pub struct CallCounts {
    counts: BTreeMap<String, u64>,
    windows: HashMap<String, CallWindow>,
}

impl CallCounts {
    pub fn record(&mut self, path: &str) {
        *self.counts.entry(path.to_owned()).or_default() += 1;
    }

    pub fn of(&self, path: &str) -> u64 {
        self.counts.get(path).copied().unwrap_or(0)
    }

    pub fn all(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Counts a call against the limit. The first call above it blocks the path for a minute, as WeCom does.
    pub fn exceeds(&mut self, path: &str, limit: u64, now: Timestamp) -> bool {
        let fresh = || CallWindow { ends_at: now.plus(MINUTE), calls: 0, blocked: false };
        let window = self.windows.entry(path.to_owned()).or_insert_with(fresh);
        if now >= window.ends_at {
            *window = fresh();
        }
        window.calls += 1;
        if !window.blocked && window.calls > limit {
            window.blocked = true;
            window.ends_at = now.plus(MINUTE);
        }
        window.blocked
    }

    fn reset_windows(&mut self) {
        self.windows.clear();
    }
}

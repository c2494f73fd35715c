//! The QR codes of the hosted sign-in page, from being shown to being answered.

use std::collections::HashMap;
use std::time::Duration;

use crate::domain::clock::Timestamp;
use crate::domain::secret::random_name;

use super::super::back::Return;
use super::super::members::App;

/// How long a QR code can be scanned. How long the real one's can is not known.
pub const SCAN_LIFETIME: Duration = Duration::from_secs(300);

/// Where a scan stands; the names are the platform's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanStatus {
    /// Shown.
    Never,
    /// Opened on a phone.
    Scanning,
    /// Agreed, with the code.
    Succeeded(String),
    /// Refused.
    Failed,
    /// Too old, or never shown.
    Error,
}

impl ScanStatus {
    /// As the poll names it.
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

/// What is signed in to.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Where the browser goes afterwards.
    pub back: Return,
    /// The application.
    pub app: &'static App,
}

struct Scan {
    asked: Asked,
    status: ScanStatus,
    expires_at: Timestamp,
}

/// All of them.
#[derive(Default)]
pub struct Scans {
    scans: HashMap<String, Scan>,
}

impl Scans {
    /// A new QR code's key.
    pub fn show(&mut self, asked: Asked, now: Timestamp) -> String {
        self.scans.retain(|_, scan| now < scan.expires_at);
        let key = random_name(22);
        self.scans.insert(key.clone(), Scan { asked, status: ScanStatus::Never, expires_at: now.plus(SCAN_LIFETIME) });
        key
    }

    /// Where a scan stands.
    pub fn status(&self, key: &str, now: Timestamp) -> ScanStatus {
        self.live(key, now).map_or(ScanStatus::Error, |scan| scan.status.clone())
    }

    /// What a scan is for, while it lives.
    pub fn asked(&self, key: &str, now: Timestamp) -> Option<&Asked> {
        self.live(key, now).map(|scan| &scan.asked)
    }

    /// Moves a scan on; one that was answered stays answered.
    pub fn advance(&mut self, key: &str, status: ScanStatus) {
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

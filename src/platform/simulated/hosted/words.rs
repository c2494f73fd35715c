//! What the page says, in the language that `lang` names, else the browser's, else Chinese.

use axum::http::{HeaderMap, header};

use super::super::ledger::scans::ScanStatus;
use super::super::query::Parameters;

/// A language of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Chinese,
    English,
}

/// The page's texts.
pub struct Words {
    pub title: &'static str,
    pub alt: &'static str,
    pub open: &'static str,
    waiting: &'static str,
    scanned: &'static str,
    expired: &'static str,
}

const CHINESE: Words = Words {
    title: "扫码登录",
    alt: "登录二维码",
    open: "代替手机：打开确认页",
    waiting: "请使用手机扫描二维码",
    scanned: "扫描成功，请在手机上确认",
    expired: "二维码已过期，即将刷新",
};

const ENGLISH: Words = Words {
    title: "Scan to sign in",
    alt: "QR code to sign in with",
    open: "No phone at hand: open the confirm page",
    waiting: "Scan this code with your phone.",
    scanned: "Scanned. Please confirm on the phone.",
    expired: "This code is too old; a new one follows.",
};

impl Language {
    /// The language of a request.
    pub fn of(parameters: &Parameters, headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
        let wanted = parameters.get("lang").or(accepted).unwrap_or_default();
        if wanted.to_ascii_lowercase().starts_with("en") { Language::English } else { Language::Chinese }
    }

    /// For the page's `lang`.
    pub fn code(self) -> &'static str {
        match self {
            Language::Chinese => "zh-CN",
            Language::English => "en",
        }
    }

    /// Its texts.
    pub fn words(self) -> &'static Words {
        match self {
            Language::Chinese => &CHINESE,
            Language::English => &ENGLISH,
        }
    }
}

impl Words {
    /// Where a scan stands. One that was answered is not shown: the browser has gone.
    pub fn status(&self, status: &ScanStatus) -> &'static str {
        match status {
            ScanStatus::Never => self.waiting,
            ScanStatus::Scanning | ScanStatus::Succeeded(_) | ScanStatus::Failed => self.scanned,
            ScanStatus::Error => self.expired,
        }
    }
}

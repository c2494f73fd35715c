//! `[store]`: where sessions and tickets are stored.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Faults, HumanDuration};

mod url;

pub use url::{RedisAddress, RedisHost, RedisLayout, RedisTls, StoreTarget, StoreUrl};

/// What a change has survived when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreConfirm {
    /// The primary has it in memory.
    None,
    /// A replica has it in memory as well.
    Replica,
    /// The primary has it on disk.
    Fsync,
}

/// `[store]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// `embedded`: a database under `server.data_dir`, for one gateway. Or the URL of Redis servers that gateways share.
    pub url: StoreUrl,
    /// A file with the password of the Redis servers, in place of one in the URL. Read again for each connection.
    pub password_file: PathBuf,
    /// A file with the certificates (PEM) that sign those of the Redis servers; if empty, the system's.
    pub ca_file: PathBuf,
    /// Begin of every key, for several fleets on the same servers.
    pub prefix: String,
    /// Time limit of one question to the Redis servers.
    pub timeout: HumanDuration,
    /// After how long without a word of the change feed each request asks the store.
    pub feed_stale: HumanDuration,
    /// For how long cached sessions are used while the store cannot be reached.
    pub outage_grace: HumanDuration,
    /// `none`, `replica` or `fsync`: what a logout has survived when it is answered.
    pub confirm: StoreConfirm,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: StoreUrl::default(),
            password_file: PathBuf::new(),
            ca_file: PathBuf::new(),
            prefix: "deskgate".to_owned(),
            timeout: HumanDuration::millis(200),
            feed_stale: HumanDuration::seconds(1),
            outage_grace: HumanDuration::seconds(30),
            confirm: StoreConfirm::None,
        }
    }
}

impl StoreConfig {
    /// Whether several gateways use the store.
    pub fn is_shared(&self) -> bool {
        self.url != StoreUrl::default()
    }

    pub(super) fn check(&self, faults: &mut Faults) {
        match self.url.target() {
            Err(why) => faults.add("store.url", why),
            Ok(StoreTarget::Embedded) => {}
            Ok(StoreTarget::Redis(address)) => self.check_redis(&address, faults),
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | ':');
        if self.prefix.is_empty() || self.prefix.len() > 32 || !self.prefix.chars().all(is_plain) {
            let why = format!("{:?} is not 1 to 32 letters, digits, '-', '_', '.' or ':'", self.prefix);
            faults.add("store.prefix", why);
        }
        self.check_durations(faults);
    }

    fn check_durations(&self, faults: &mut Faults) {
        let (timeout, feed_stale) = (self.timeout.get(), self.feed_stale.get());
        if !(Duration::from_millis(10)..=Duration::from_secs(10)).contains(&timeout) {
            faults.add("store.timeout", format!("\"{}\" is not between \"10ms\" and \"10s\"", self.timeout));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&feed_stale) {
            faults.add("store.feed_stale", format!("\"{}\" is not between \"100ms\" and \"1m\"", self.feed_stale));
        }
        if self.outage_grace > HumanDuration::seconds(3600) {
            let why = format!(
                "\"{}\" is too long; use at most \"1h\", because logouts on other gateways are not known meanwhile",
                self.outage_grace
            );
            faults.add("store.outage_grace", why);
        }
    }

    fn check_redis(&self, address: &RedisAddress, faults: &mut Faults) {
        let in_file = !self.password_file.as_os_str().is_empty();
        if in_file && address.password.is_some() {
            faults.add("store.password_file", "the URL has a password too; set only one");
        }
        if !self.ca_file.as_os_str().is_empty() && address.tls == RedisTls::Off {
            faults.add(
                "store.ca_file",
                "the URL does not use TLS; use rediss://, rediss+sentinel:// or rediss+cluster://",
            );
        }
        for (key, file) in [("store.password_file", &self.password_file), ("store.ca_file", &self.ca_file)] {
            if let Some(Err(error)) = (!file.as_os_str().is_empty()).then(|| std::fs::metadata(file)) {
                faults.add(key, format!("{file:?} cannot be read: {error}"));
            }
        }
    }
}

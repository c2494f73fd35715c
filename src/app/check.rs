//! Checks the files that a start would read: data directory, keys, certificates and rules. Creates and changes nothing.

use std::io::ErrorKind;
use std::path::Path;

use super::secrets::{self, FleetSecrets};
use super::tls::ReadCertificates;
use super::{RuleSource, StartError, descriptors, lock, warnings};
use crate::admin::keys::KeyError;
use crate::config::Config;
use crate::domain::clock::Clock;
use crate::metrics::Metrics;
use crate::token::key_folder::KeyFolder;
use crate::token::ring::KeyFault;
use crate::upstreams;

/// The result of checking files.
#[derive(Debug, Default)]
pub struct FileCheck {
    /// One message per fault.
    pub faults: Vec<String>,
    /// One message per setting that leaves the gateway weaker than it looks, and per name that does not resolve.
    pub warnings: Vec<String>,
    /// The number of valid rules; 0 if there are faults in the rule files.
    pub rules: usize,
    /// The number of cases that passed.
    pub cases: usize,
}

/// Checks every file that the configuration names. `is_faulty` tells which settings already have a fault: what depends on
/// them is skipped, because the default in their place is not what the operator meant.
pub fn check_files(config: &Config, is_faulty: impl Fn(&str) -> bool) -> FileCheck {
    let mut check = FileCheck::default();
    if !is_faulty("server.data_dir") {
        check.add(data_directory(config));
    }
    check.certificates(config);
    check.add(upstreams::tls::read_all(&config.upstreams).map(drop).map_err(StartError::from));
    check.add(FleetSecrets::read(&config.server).map(drop));
    check.vault_keys(config);
    check.platform_secret(config);
    if !is_faulty("rules.dir") {
        check.rules(config);
    }
    if check.faults.is_empty() {
        check.warnings.extend(upstreams::resolve::unresolvable(&config.upstreams));
        check.warnings.extend(descriptors::shortage(config));
    }
    check
}

impl FileCheck {
    fn add(&mut self, result: Result<(), StartError>) {
        self.faults.extend(result.err().map(|error| error.to_string()));
    }

    fn certificates(&mut self, config: &Config) {
        match ReadCertificates::read(&config.server) {
            Ok(read) => self.warnings.extend(read.warnings(&config.server, Clock::system().now())),
            Err(error) => self.faults.push(error.to_string()),
        }
    }

    fn vault_keys(&mut self, config: &Config) {
        let current = Some(&config.otp.key_file).filter(|file| !file.as_os_str().is_empty());
        let current = current.map(|file| ("otp.key_file", file));
        let old = config.otp.old_key_files.iter().map(|file| ("otp.old_key_files", file));
        for (key, file) in current.into_iter().chain(old) {
            self.faults.extend(secrets::read_key(file).err().map(|error| format!("{key}: {error}")));
        }
    }

    fn platform_secret(&mut self, config: &Config) {
        let file = &config.platform.secret_file;
        let why = match config.platform.read_secret() {
            // A missing file is a fault of the configuration already.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => error.to_string(),
            Ok(secret) if secret.reveal().is_empty() && !file.as_os_str().is_empty() => "the file is empty".to_owned(),
            Ok(_) => return,
        };
        self.faults.push(format!("platform.secret_file: {}: {why}", file.display()));
    }

    fn rules(&mut self, config: &Config) {
        let metrics = match Metrics::new() {
            Ok(metrics) => metrics,
            Err(error) => return self.faults.push(error.to_string()),
        };
        match RuleSource::Folder(config.rules.dir.clone()).load(&config.named_upstreams(), &metrics) {
            Ok(rules) => {
                (self.rules, self.cases) = (rules.count(), rules.cases());
                self.warnings.extend(warnings::of(config, &rules));
            }
            Err(faults) => self.faults.extend(faults.iter().map(ToString::to_string)),
        }
    }
}

/// Checks the data directory and the signing keys in it. A directory that this user may not read is skipped: often only
/// the gateway's user may.
fn data_directory(config: &Config) -> Result<(), StartError> {
    if !is_readable(&config.server.data_dir) {
        return Ok(());
    }
    lock::check_contents(&config.server.data_dir)?;
    // With a fleet's secret the keys are in the directory, which a check does not open.
    if config.server.secret_file().is_some() {
        return Ok(());
    }
    let folder = KeyFolder::new(secrets::key_folder(config));
    match folder.read_ring(config.token.key_grace.get(), Clock::system().now()) {
        // The first start generates a key.
        Ok(_) | Err(KeyFault::Missing(_)) => Ok(()),
        Err(fault) => Err(KeyError::Fault(fault).into()),
    }
}

fn is_readable(folder: &Path) -> bool {
    !matches!(std::fs::read_dir(folder), Err(error) if error.kind() == ErrorKind::PermissionDenied)
}

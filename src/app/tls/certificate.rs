//! Reads one certificate with its key and its OCSP response, and what operators and SNI need to know about it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as RustlsError, InconsistentKeys};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::CertificateConfig;
use crate::domain::clock::Timestamp;

/// A certificate that expires sooner is worth a warning: automatic renewal usually happens a month before.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// The first byte of every OCSP response, which is a DER sequence.
const DER_SEQUENCE: u8 = 0x30;

/// A certificate that belongs to its key.
#[derive(Clone)]
pub(super) struct Certificate {
    label: String,
    /// The DNS names in lower case; the first label may be `*`.
    dns_names: Vec<String>,
    addresses: Vec<IpAddr>,
    expires_at: Timestamp,
    pub(super) certified_key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads the files. An error names them.
    pub(super) fn read(files: &CertificateConfig) -> Result<Self, String> {
        Self::read_pair(files).map_err(|why| {
            let (certificate, key) = (files.cert_file.display(), files.key_file.display());
            format!("{certificate} and {key}: {why}")
        })
    }

    fn read_pair(files: &CertificateConfig) -> Result<Self, String> {
        let chain = read_chain(&files.cert_file).map_err(|why| format!("the certificate: {why}"))?;
        let key = PrivateKeyDer::from_pem_file(&files.key_file).map_err(|error| match error {
            PemError::NoItemsFound => "the private key: the file has none in PEM".to_owned(),
            error => format!("the private key: {}", describe(&error)),
        })?;
        let own = chain.first().cloned().ok_or("the certificate: the file has none in PEM")?;
        let provider = CryptoProvider::get_default().ok_or("no TLS library is installed")?;
        let mut certified_key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            RustlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                "the private key does not belong to the certificate".to_owned()
            }
            error => error.to_string(),
        })?;
        certified_key.ocsp = files.ocsp_file().map(read_ocsp).transpose()?;
        Self::describe(&own, certified_key, &files.cert_file)
    }

    fn describe(der: &CertificateDer<'_>, certified_key: CertifiedKey, file: &Path) -> Result<Self, String> {
        let invalid = |error: &dyn std::fmt::Display| format!("the certificate: {error}");
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| invalid(&error))?;
        let alternative = parsed.subject_alternative_name().map_err(|error| invalid(&error))?;
        let names = alternative.as_ref().map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let dns_names: Vec<String> = names.iter().filter_map(dns_name).collect();
        let addresses: Vec<IpAddr> = names.iter().filter_map(ip_address).collect();
        let label = dns_names.first().cloned().or_else(|| addresses.first().map(ToString::to_string));
        let file_stem = || file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self {
            label: label.unwrap_or_else(file_stem),
            dns_names,
            addresses,
            expires_at: Timestamp::from_seconds(parsed.validity().not_after.timestamp()),
            certified_key: Arc::new(certified_key),
        })
    }

    /// The first name of the certificate, or else the name of its file.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn dns_names(&self) -> &[String] {
        &self.dns_names
    }

    /// Its names and its expiry, for the log.
    pub(super) fn summary(&self) -> String {
        let mut names: Vec<String> = self.dns_names.clone();
        names.extend(self.addresses.iter().map(ToString::to_string));
        if names.is_empty() {
            names.push(self.label.clone());
        }
        format!("{} until {}", names.join(", "), self.expires_at.iso8601())
    }

    pub(super) fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// Whether the certificate is for this host.
    pub(super) fn names(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.dns_names.iter().any(|name| match name.strip_prefix("*.") {
            Some(suffix) => parent == Some(suffix),
            None => *name == host,
        })
    }

    pub(super) fn expiry_warning(&self, now: Timestamp) -> Option<String> {
        let label = &self.label;
        if self.expires_at <= now {
            let when = self.expires_at.iso8601();
            return Some(format!("the certificate of {label} expired at {when}: clients will refuse it"));
        }
        let left = now.until(self.expires_at);
        let days = left.as_secs() / (24 * 3600);
        (left < EXPIRES_SOON).then(|| format!("the certificate of {label} expires within {} days: renew it", days + 1))
    }
}

fn dns_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    }
}

fn ip_address(name: &GeneralName<'_>) -> Option<IpAddr> {
    let GeneralName::IPAddress(octets) = name else { return None };
    let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from)).ok()
}

/// The certificates in a PEM file, in its order.
pub(super) fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_file_iter(file).and_then(|found| found.collect::<Result<Vec<_>, _>>());
    match chain {
        Ok(chain) if chain.is_empty() => Err("the file has none in PEM".to_owned()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(describe(&error)),
    }
}

/// The text of an error. That of a missing end marker would print bytes of the file.
fn describe(error: &PemError) -> String {
    match error {
        PemError::Io(error) => error.to_string(),
        PemError::MissingSectionEnd { .. } => "the PEM block has no end".to_owned(),
        PemError::IllegalSectionStart { .. } => "a PEM block has an invalid first line".to_owned(),
        _ => "the file is not valid PEM".to_owned(),
    }
}

fn read_ocsp(file: &Path) -> Result<Vec<u8>, String> {
    let response = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    if response.first() != Some(&DER_SEQUENCE) {
        return Err(format!("{}: the file is not an OCSP response in DER", file.display()));
    }
    Ok(response)
}

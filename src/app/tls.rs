//! The certificates and client authorities of the TLS listeners. They are replaced without a restart, on SIGHUP and when
//! one of their files changes. Handshakes are left to `gateway::accept`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use pingora_core::listeners::tls::Acceptor;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig as RustlsConfig, version};

use super::StartError;
use super::file_watcher::{self, Fingerprint};
use crate::config::{CertificateConfig, ListenerConfig, ServerConfig};
use crate::domain::clock::{Clock, Timestamp};
use crate::metrics::Metrics;

mod certificate;

mod sni;

use certificate::Certificate;
use sni::CertificateSet;

/// What one or several listeners accept TLS connections with. A reload replaces it for the connections that follow.
pub(super) type SharedAcceptor = Arc<ArcSwap<Acceptor>>;

/// The certificates in use.
pub(super) struct Certificates {
    /// By the file of client authorities; `None` for listeners that ask for no client certificate.
    acceptors: BTreeMap<Option<PathBuf>, SharedAcceptor>,
    loaded: Mutex<LoadedFiles>,
    metrics: Arc<Metrics>,
}

/// Which files are in use, and what they looked like when they were last read, whether or not they were valid.
#[derive(Clone)]
struct LoadedFiles {
    names: TlsFiles,
    fingerprint: Fingerprint,
}

/// The files that the listeners need.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TlsFiles {
    /// Each with the setting that names it. The first is for clients that name no host, or one that no certificate has.
    certificates: Vec<(String, CertificateConfig)>,
    client_authorities: Vec<PathBuf>,
}

/// Certificates and client authorities that were read and are valid, but not in use yet.
pub(super) struct ReadCertificates {
    files: LoadedFiles,
    certificates: Vec<Certificate>,
    verifiers: BTreeMap<PathBuf, Arc<dyn ClientCertVerifier>>,
}

impl TlsFiles {
    fn of(server: &ServerConfig) -> Self {
        let listeners = server.client_listeners();
        let mut client_authorities: Vec<PathBuf> =
            listeners.iter().filter_map(|listener| listener.client_ca_file().map(Path::to_path_buf)).collect();
        client_authorities.sort();
        client_authorities.dedup();
        let short_form = server.tls.iter().map(|files| ("server.tls".to_owned(), files.clone()));
        let listed = server.certificates.iter().enumerate();
        let listed = listed.map(|(index, files)| (format!("server.certificates[{index}]"), files.clone()));
        Self { certificates: short_form.chain(listed).collect(), client_authorities }
    }

    fn fingerprint(&self) -> Fingerprint {
        let pairs = self.certificates.iter().flat_map(|(_, files)| {
            [Some(files.cert_file.as_path()), Some(files.key_file.as_path()), files.ocsp_file()].into_iter().flatten()
        });
        Fingerprint::of_files(pairs.chain(self.client_authorities.iter().map(PathBuf::as_path)))
    }

    /// Takes the fingerprint first, so that a change in between is detected.
    fn read(&self) -> Result<ReadCertificates, StartError> {
        pingora_core::tls::install_default_crypto_provider();
        let files = LoadedFiles { names: self.clone(), fingerprint: self.fingerprint() };
        let certificates = self
            .certificates
            .iter()
            .map(|(key, files)| Certificate::read(files).map_err(|why| StartError::Tls { key: key.clone(), why }));
        let certificates = certificates.collect::<Result<_, _>>()?;
        let verifiers = self.client_authorities.iter().map(|file| {
            let failed =
                |why| StartError::Tls { key: "server.listeners".to_owned(), why: format!("{}: {why}", file.display()) };
            Ok((file.clone(), read_client_authorities(file).map_err(failed)?))
        });
        Ok(ReadCertificates { files, certificates, verifiers: verifiers.collect::<Result<_, StartError>>()? })
    }
}

impl ReadCertificates {
    /// Reads the files of a configuration. Changes nothing.
    pub(super) fn read(server: &ServerConfig) -> Result<Self, StartError> {
        TlsFiles::of(server).read()
    }

    /// What an operator should know about certificates that are valid for TLS: those that have expired or soon will, and a
    /// public URL that none of them names.
    pub(super) fn warnings(&self, server: &ServerConfig, now: Timestamp) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.certificates.iter().filter_map(|certificate| certificate.expiry_warning(now)).collect();
        let host = server.public_url.host_str().filter(|_| server.public_url.scheme() == "https");
        if let Some(host) = host
            && !self.certificates.is_empty()
            && !self.certificates.iter().any(|certificate| certificate.names(host))
        {
            warnings.push(format!("server.public_url: no certificate names \"{host}\", so browsers will refuse it"));
        }
        warnings
    }

    fn log_warnings(&self, server: &ServerConfig) {
        for warning in self.warnings(server, Clock::system().now()) {
            tracing::warn!("{warning}");
        }
    }

    fn acceptor(&self, client_authorities: Option<&Path>) -> Option<Acceptor> {
        let certificates = CertificateSet::new(&self.certificates)?;
        // TLS 1.2 and 1.3 are all that rustls has.
        let builder = RustlsConfig::builder_with_protocol_versions(&[&version::TLS12, &version::TLS13]);
        let builder = match client_authorities {
            None => builder.with_no_client_auth(),
            Some(file) => builder.with_client_cert_verifier(self.verifiers.get(file)?.clone()),
        };
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Some(Acceptor::from_server_config(Arc::new(config)))
    }
}

impl Certificates {
    /// Reads all certificates and client authorities of a configuration.
    pub(super) fn open(server: &ServerConfig, metrics: &Arc<Metrics>) -> Result<Self, StartError> {
        let read = ReadCertificates::read(server)?;
        let mut acceptors = BTreeMap::new();
        for listener in server.client_listeners().iter().filter(|listener| listener.tls) {
            let client_authorities = listener.client_ca_file();
            let acceptor = read.acceptor(client_authorities).ok_or_else(|| StartError::Tls {
                key: "server.listeners".to_owned(),
                why: format!("\"{}\" has no certificate", listener.address),
            })?;
            let key = client_authorities.map(Path::to_path_buf);
            acceptors.entry(key).or_insert_with(|| Arc::new(ArcSwap::from_pointee(acceptor)));
        }
        read.log_warnings(server);
        record(metrics, &read.certificates);
        Ok(Self { acceptors, loaded: Mutex::new(read.files), metrics: metrics.clone() })
    }

    /// Whether no listener serves HTTPS.
    pub(super) fn is_empty(&self) -> bool {
        self.acceptors.is_empty()
    }

    /// What a TLS listener accepts connections with.
    pub(super) fn acceptor(&self, listener: &ListenerConfig) -> Option<SharedAcceptor> {
        let key = listener.client_ca_file().map(Path::to_path_buf);
        self.acceptors.get(&key).filter(|_| listener.tls).cloned()
    }

    /// Reads the files again, or those of a changed configuration, without using them yet.
    pub(super) fn read(&self, server: &ServerConfig) -> Result<ReadCertificates, StartError> {
        self.read_files(&TlsFiles::of(server)).inspect(|read| read.log_warnings(server))
    }

    /// Uses certificates that were read for all handshakes that follow. Established connections keep theirs, and sessions of
    /// the previous ones are not resumed.
    pub(super) fn install(&self, read: ReadCertificates) {
        for (client_authorities, shared) in &self.acceptors {
            if let Some(acceptor) = read.acceptor(client_authorities.as_deref()) {
                shared.store(Arc::new(acceptor));
            }
        }
        record(&self.metrics, &read.certificates);
        *self.loaded() = read.files;
    }

    /// Reads the files again and uses them. Returns what each certificate is for and until when. On an error nothing changes.
    fn reload(&self) -> Result<Vec<String>, StartError> {
        let names = self.loaded().names.clone();
        let read = self.read_files(&names)?;
        let summaries = read.certificates.iter().map(Certificate::summary).collect();
        self.install(read);
        Ok(summaries)
    }

    /// Invalid files in use are remembered: they are reported once, and read again when they change.
    fn read_files(&self, names: &TlsFiles) -> Result<ReadCertificates, StartError> {
        let fingerprint = names.fingerprint();
        names.read().inspect_err(|_| {
            self.metrics.tls_reload_success.set(0);
            let mut loaded = self.loaded();
            if loaded.names == *names {
                loaded.fingerprint = fingerprint;
            }
        })
    }

    /// Resolves when a file has changed since it was last read.
    async fn changed(&self) {
        file_watcher::changed(|| {
            let loaded = self.loaded();
            Some(loaded.names.fingerprint()).filter(|current| *current != loaded.fingerprint)
        })
        .await;
    }

    /// Reloads the certificates whenever one of their files changes.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            self.changed().await;
            match self.reload() {
                Ok(certificates) => {
                    tracing::info!(certificates = certificates.join("; "), "certificates reloaded: a file changed");
                }
                Err(error) => tracing::error!("certificates not reloaded, the previous ones stay in use: {error}"),
            }
        }
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedFiles> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requires a client certificate of one of the authorities in a file.
fn read_client_authorities(file: &Path) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut authorities = RootCertStore::empty();
    for authority in certificate::read_chain(file)? {
        authorities.add(authority).map_err(|error| error.to_string())?;
    }
    WebPkiClientVerifier::builder(Arc::new(authorities)).build().map_err(|error| error.to_string())
}

/// Shows when the certificates in use expire. Of several with the same label, the first to expire counts.
fn record(metrics: &Metrics, certificates: &[Certificate]) {
    let mut expiries: BTreeMap<&str, i64> = BTreeMap::new();
    for certificate in certificates {
        let expiry = expiries.entry(certificate.label()).or_insert(i64::MAX);
        *expiry = certificate.expires_at().seconds().min(*expiry);
    }
    metrics.set_certificate_expiries(&expiries);
    metrics.tls_reload_success.set(1);
}

#[cfg(test)]
mod tests;

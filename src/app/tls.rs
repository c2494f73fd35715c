//! The TLS certificate of the client listeners, replaced on reload without a restart. Handshakes are left to
//! `gateway::accept`.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora_core::listeners::tls::Acceptor;
use pingora_core::tls::sign::CertifiedKey;
use pingora_core::tls::{
    ClientHello, CryptoProvider, ResolvesServerCert, ServerConfig, load_certs_and_key_files, version,
};

use super::StartError;
use crate::config::TlsConfig;

/// The certificate in use and the files it comes from.
pub(super) struct Certificate {
    files: TlsConfig,
    resolver: Arc<CertificateResolver>,
}

/// Gives each TLS handshake the latest certificate.
struct CertificateResolver(ArcSwap<CertifiedKey>);

impl fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateResolver")
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    /// Reads the certificate and its private key.
    pub(super) fn open(files: &TlsConfig) -> Result<Self, StartError> {
        pingora_core::tls::install_default_crypto_provider();
        let resolver = Arc::new(CertificateResolver(ArcSwap::from_pointee(read(files)?)));
        Ok(Self { files: files.clone(), resolver })
    }

    /// Reads the files again; handshakes from then on use the new certificate.
    pub(super) fn reload(&self) -> Result<(), StartError> {
        self.resolver.0.store(Arc::new(read(&self.files)?));
        Ok(())
    }

    /// Accepts TLS 1.2 and 1.3 and offers HTTP/2 and HTTP/1.1.
    pub(super) fn acceptor(&self) -> Arc<Acceptor> {
        let mut config = ServerConfig::builder_with_protocol_versions(&[&version::TLS12, &version::TLS13])
            .with_no_client_auth()
            .with_cert_resolver(self.resolver.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(Acceptor::from_server_config(Arc::new(config)))
    }
}

fn read(files: &TlsConfig) -> Result<CertifiedKey, StartError> {
    let (cert, key) = (files.cert_file.display().to_string(), files.key_file.display().to_string());
    let failed = |why: String| StartError::Tls(format!("{cert} and {key}: {why}"));
    let found = load_certs_and_key_files(&cert, &key).map_err(|error| failed(error.to_string()))?;
    let (chain, private) =
        found.ok_or_else(|| failed("the files must hold a certificate chain and its private key in PEM".to_owned()))?;
    let provider = CryptoProvider::get_default().ok_or_else(|| failed("no TLS library is installed".to_owned()))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| failed(error.to_string()))
}

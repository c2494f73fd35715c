//! The certificate of the client listeners, exchanged without a restart.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora_core::listeners::tls::Acceptor;
use pingora_core::tls::sign::CertifiedKey;
use pingora_core::tls::{
    ClientHello, CryptoProvider, ResolvesServerCert, ServerConfig, load_certs_and_key_files, version,
};

use super::StartFault;
use crate::config::TlsConfig;

/// The certificate in use.
pub(super) struct Certificate {
    files: TlsConfig,
    current: Arc<Current>,
}

struct Current(ArcSwap<CertifiedKey>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    /// Reads certificate and key.
    pub(super) fn open(files: &TlsConfig) -> Result<Self, StartFault> {
        pingora_core::tls::install_default_crypto_provider();
        let current = Arc::new(Current(ArcSwap::from_pointee(read(files)?)));
        Ok(Self { files: files.clone(), current })
    }

    /// Reads them again; the next handshake shows the new ones.
    pub(super) fn reload(&self) -> Result<(), StartFault> {
        self.current.0.store(Arc::new(read(&self.files)?));
        Ok(())
    }

    /// Speaks TLS 1.2 and 1.3, HTTP/2 where the client can.
    pub(super) fn acceptor(&self) -> Arc<Acceptor> {
        let mut config = ServerConfig::builder_with_protocol_versions(&[&version::TLS12, &version::TLS13])
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(Acceptor::from_server_config(Arc::new(config)))
    }
}

fn read(files: &TlsConfig) -> Result<CertifiedKey, StartFault> {
    let (cert, key) = (files.cert_file.display().to_string(), files.key_file.display().to_string());
    let fault = |why: String| StartFault::Tls(format!("{cert} and {key}: {why}"));
    let found = load_certs_and_key_files(&cert, &key).map_err(|error| fault(error.to_string()))?;
    let (chain, private) = found.ok_or_else(|| fault("no certificate or no private key in them".to_owned()))?;
    let provider = CryptoProvider::get_default().ok_or_else(|| fault("no cryptography is set up".to_owned()))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| fault(error.to_string()))
}

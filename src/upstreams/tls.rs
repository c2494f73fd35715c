//! TLS to upstreams: reads the files of `[upstreams.NAME.tls]` once and secures peers with them. Handshakes are left to
//! Pingora's connectors.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use pingora_core::protocols::tls::CaType;
use pingora_core::tls::sign::CertifiedKey;
use pingora_core::tls::{CertificateDer, CryptoProvider, PrivateKeyDer, load_certs_and_key_files};
use pingora_core::upstreams::peer::{HttpPeer, Scheme};
use pingora_core::utils::tls::{CertKey, WrappedX509};
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::{UpstreamConfig, UpstreamTlsConfig};

/// A file of an upstream's TLS settings that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("upstreams.{upstream}.tls.{key}: {file}: {why}")]
pub struct UpstreamTlsFault {
    upstream: String,
    key: &'static str,
    file: String,
    why: String,
}

/// What was read for each upstream with TLS, by its name.
pub(crate) type UpstreamTlsFiles = BTreeMap<String, Arc<UpstreamTls>>;

/// Reads the files of all upstreams.
pub(crate) fn read_all(config: &BTreeMap<String, UpstreamConfig>) -> Result<UpstreamTlsFiles, UpstreamTlsFault> {
    let secured = config.iter().filter_map(|(name, upstream)| Some((name, upstream.tls.as_ref()?)));
    secured.map(|(name, tls)| Ok((name.clone(), Arc::new(UpstreamTls::open(name, tls)?)))).collect()
}

/// How connections to one upstream are secured.
#[derive(Debug)]
pub(crate) struct UpstreamTls {
    authorities: Option<Arc<CaType>>,
    client: Option<Arc<CertKey>>,
    server_name: Option<String>,
    verify: bool,
    /// Keeps connections with other certificates or authorities from being reused.
    group: u64,
}

impl UpstreamTls {
    /// Reads the files.
    fn open(upstream: &str, config: &UpstreamTlsConfig) -> Result<Self, UpstreamTlsFault> {
        pingora_core::tls::install_default_crypto_provider();
        let fault = |key, file: &Path, why| UpstreamTlsFault {
            upstream: upstream.to_owned(),
            key,
            file: file.display().to_string(),
            why,
        };
        let mut group = DefaultHasher::new();
        let authorities = config.ca_file().map(|file| {
            let certificates = read_authorities(file).map_err(|why| fault("ca_file", file, why))?;
            hash_all(&certificates, &mut group);
            Ok(Arc::from(certificates))
        });
        let client = config.client_certificate().map(|(chain, key)| {
            let client = read_client(chain, key).map_err(|why| fault("cert_file", chain, why))?;
            hash_all([client.leaf()], &mut group);
            Ok(Arc::new(client))
        });
        Ok(Self {
            authorities: authorities.transpose()?,
            client: client.transpose()?,
            server_name: Some(config.server_name.clone()).filter(|name| !name.is_empty()),
            verify: config.verify,
            group: group.finish(),
        })
    }

    /// Secures the connections to a peer. `host` is the host of its configured address; the certificate must have it unless
    /// `server_name` is set.
    pub(super) fn secure(&self, peer: &mut HttpPeer, host: String) {
        peer.scheme = Scheme::HTTPS;
        // Pingora verifies nothing if the name is empty; a host never is.
        peer.sni = self.server_name.clone().unwrap_or(host);
        peer.client_cert_key = self.client.clone();
        peer.group_key = self.group;
        peer.options.ca = self.authorities.clone();
        peer.options.verify_cert = self.verify;
        peer.options.verify_hostname = self.verify;
    }
}

fn hash_all<'a>(certificates: impl IntoIterator<Item = &'a WrappedX509>, hasher: &mut impl Hasher) {
    for certificate in certificates {
        certificate.borrow_raw_cert().hash(hasher);
    }
}

fn read_authorities(file: &Path) -> Result<Vec<WrappedX509>, String> {
    let text = std::fs::read(file).map_err(|error| error.to_string())?;
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        return Err("the file has no certificate in PEM".to_owned());
    }
    certificates.iter().map(|certificate| parse(certificate.to_vec())).collect()
}

/// Parses a certificate here, because Pingora's own constructors panic if one cannot be parsed.
fn parse(certificate: Vec<u8>) -> Result<WrappedX509, String> {
    #[allow(clippy::ptr_arg)] // what Pingora's type calls it with
    fn read(certificate: &Vec<u8>) -> Result<X509Certificate<'_>, String> {
        X509Certificate::from_der(certificate).map(|(_, parsed)| parsed).map_err(|error| error.to_string())
    }
    WrappedX509::try_new(certificate, read)
}

fn read_client(chain: &Path, key: &Path) -> Result<CertKey, String> {
    let found = load_certs_and_key_files(&chain.display().to_string(), &key.display().to_string());
    let missing = "this file and key_file must hold a certificate chain and its private key in PEM";
    let (chain, key) = found.map_err(|error| error.to_string())?.ok_or(missing)?;
    let provider = CryptoProvider::get_default().ok_or("no TLS library is installed")?;
    CertifiedKey::from_der(chain.clone(), key.clone_key(), provider).map_err(|error| error.to_string())?;
    let key = key.secret_der().to_vec();
    PrivateKeyDer::try_from(key.clone()).map_err(|_| "the private key has an unknown form")?;
    let chain: Vec<Vec<u8>> = chain.iter().map(|certificate| certificate.to_vec()).collect();
    for certificate in &chain {
        parse(certificate.clone())?;
    }
    Ok(CertKey::new(chain, key))
}

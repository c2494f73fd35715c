//! TLS as clients speak it, and an authority that they trust, made anew for each gateway.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Signs the certificates of one gateway.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    trust: Trust,
}

/// A certificate and its key as files hold them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate as it is shown in a handshake.
    pub der: Vec<u8>,
    /// The certificate file.
    pub certificate: String,
    /// The key file.
    pub key: String,
}

impl Pair {
    /// A server that shows this certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        let key = STANDARD.decode(self.key.lines().filter(|line| !line.starts_with('-')).collect::<String>());
        let key = PrivatePkcs8KeyDer::from(key.expect("base64"));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(self.der.clone())], key.into())
            .expect("a certificate and its key");
        TlsAcceptor::from(Arc::new(config))
    }
}

impl Authority {
    /// A new one, trusted by nobody yet.
    pub fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        let root = params.self_signed(&key).expect("a root certificate").der().clone();
        Authority {
            issuer: Issuer::new(params, key),
            trust: Trust::new(root, &[b"http/1.1"], tokio_rustls::rustls::ALL_VERSIONS),
        }
    }

    /// A new certificate for this machine, with a key of its own.
    pub fn issue(&self) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()]).expect("an address");
        let der = params.signed_by(&key, &self.issuer).expect("a certificate").der().to_vec();
        Pair { certificate: pem("CERTIFICATE", &der), key: pem("PRIVATE KEY", key.serialized_der()), der }
    }

    /// What a client needs to believe this authority. It offers HTTP/1.1.
    pub fn trust(&self) -> Trust {
        self.trust.clone()
    }
}

/// The files that `server.tls` names.
pub struct CertificateFiles {
    /// `cert_file`
    pub certificate: PathBuf,
    /// `key_file`
    pub key: PathBuf,
}

impl CertificateFiles {
    /// Those in this folder.
    pub fn of(folder: &Path) -> CertificateFiles {
        CertificateFiles { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") }
    }

    /// Puts a certificate and its key there.
    pub fn write(&self, pair: &Pair) {
        std::fs::write(&self.certificate, &pair.certificate).expect("a certificate file");
        std::fs::write(&self.key, &pair.key).expect("a key file");
    }
}

/// Whom a client believes, and what it offers to speak.
#[derive(Clone)]
pub struct Trust {
    root: CertificateDer<'static>,
    config: Arc<ClientConfig>,
}

impl Trust {
    fn new(
        root: CertificateDer<'static>,
        protocols: &[&[u8]],
        versions: &[&'static SupportedProtocolVersion],
    ) -> Trust {
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).expect("a root certificate");
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // A resumed session would not show the certificate.
        config.resumption = Resumption::disabled();
        Trust { root, config: Arc::new(config) }
    }

    /// Offers these protocols (ALPN) instead; none at all when there are none.
    pub fn offering(&self, protocols: &[&[u8]]) -> Trust {
        Trust::new(self.root.clone(), protocols, tokio_rustls::rustls::ALL_VERSIONS)
    }

    /// Speaks only this version of TLS, and HTTP/1.1.
    pub fn only(&self, version: &'static SupportedProtocolVersion) -> Trust {
        Trust::new(self.root.clone(), &[b"http/1.1"], &[version])
    }

    /// Shakes hands.
    pub async fn secure(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        TlsConnector::from(self.config.clone()).connect(name, stream).await
    }
}

/// Where a server is, and whether TLS is spoken there.
#[derive(Clone)]
pub struct Place {
    /// Its address.
    pub address: SocketAddr,
    /// With TLS: whom to believe.
    pub trust: Option<Trust>,
}

impl Place {
    /// The scheme of its addresses.
    pub fn scheme(&self) -> &'static str {
        match self.trust {
            Some(_) => "https",
            None => "http",
        }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Place {
        Place { address, trust: None }
    }
}

/// DER in the armour of RFC 7468.
fn pem(kind: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

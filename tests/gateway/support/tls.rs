//! Client TLS, and a certificate authority for each gateway.

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
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Issues the certificates of one gateway.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
    client_tls: ClientTls,
}

/// A certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateAndKey {
    /// The certificate in DER.
    pub der: Vec<u8>,
    /// The certificate in PEM.
    pub certificate: String,
    /// The key in PEM.
    pub key: String,
}

impl CertificateAndKey {
    /// A TLS acceptor with this certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor_with(&[], None)
    }

    /// A TLS acceptor with this certificate and ALPN protocols, that requires certificates of `clients` if given.
    pub fn acceptor_with(&self, protocols: &[&[u8]], clients: Option<&CertificateAuthority>) -> TlsAcceptor {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.root.clone()).expect("a root certificate");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let mut config = builder
            .with_single_cert(vec![CertificateDer::from(self.der.clone())], self.private_key())
            .expect("a certificate and its key");
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        let key = STANDARD.decode(self.key.lines().filter(|line| !line.starts_with('-')).collect::<String>());
        PrivatePkcs8KeyDer::from(key.expect("base64")).into()
    }
}

impl CertificateAuthority {
    /// Creates an authority with a self-signed root.
    pub fn new() -> CertificateAuthority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "deskgate test authority");
        let root = params.self_signed(&key).expect("a root certificate").der().clone();
        CertificateAuthority {
            issuer: Issuer::new(params, key),
            client_tls: ClientTls::new(root.clone(), &[b"http/1.1"], tokio_rustls::rustls::ALL_VERSIONS, None),
            root,
        }
    }

    /// Its own certificate in PEM.
    pub fn certificate(&self) -> String {
        pem("CERTIFICATE", &self.root)
    }

    /// Issues a certificate for 127.0.0.1 with a new key.
    pub fn issue(&self) -> CertificateAndKey {
        self.issue_for(&["127.0.0.1"])
    }

    /// Issues a certificate for these names with a new key.
    pub fn issue_for(&self, names: &[&str]) -> CertificateAndKey {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        let der = params.signed_by(&key, &self.issuer).expect("a certificate").der().to_vec();
        CertificateAndKey { certificate: pem("CERTIFICATE", &der), key: pem("PRIVATE KEY", key.serialized_der()), der }
    }

    /// The TLS settings of a client that trusts this authority and offers HTTP/1.1.
    pub fn client_tls(&self) -> ClientTls {
        self.client_tls.clone()
    }
}

/// The files that `server.tls` names.
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl CertificateFiles {
    /// The files in this folder.
    pub fn of(folder: &Path) -> CertificateFiles {
        CertificateFiles { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") }
    }

    /// The files in this folder whose names begin with `stem`.
    pub fn named(folder: &Path, stem: &str) -> CertificateFiles {
        let file = |end: &str| folder.join(format!("{stem}{end}"));
        CertificateFiles { certificate: file(".certificate.pem"), key: file(".key.pem") }
    }

    /// Writes both files.
    pub fn write(&self, pair: &CertificateAndKey) {
        std::fs::write(&self.certificate, &pair.certificate).expect("a certificate file");
        std::fs::write(&self.key, &pair.key).expect("a key file");
    }
}

/// The trusted root, ALPN protocols and TLS versions of a client.
#[derive(Clone)]
pub struct ClientTls {
    root: CertificateDer<'static>,
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl ClientTls {
    fn new(
        root: CertificateDer<'static>,
        protocols: &[&[u8]],
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&CertificateAndKey>,
    ) -> ClientTls {
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).expect("a root certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions of TLS")
            .with_root_certificates(roots);
        let mut config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => config
                .with_client_auth_cert(vec![CertificateDer::from(identity.der.clone())], identity.private_key())
                .expect("a certificate and its key"),
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // A resumed session has no server certificate to check.
        config.resumption = Resumption::disabled();
        let server_name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        ClientTls { root, config: Arc::new(config), server_name }
    }

    /// Asks for this host (SNI).
    pub fn with_server_name(&self, name: &str) -> ClientTls {
        let server_name = ServerName::try_from(name.to_owned()).expect("a name");
        ClientTls { server_name, ..self.clone() }
    }

    /// Has a certificate of its own, and offers only this version of TLS.
    pub fn with_identity(
        &self,
        identity: Option<&CertificateAndKey>,
        version: &'static SupportedProtocolVersion,
    ) -> ClientTls {
        ClientTls::new(self.root.clone(), &[b"http/1.1"], &[version], identity)
    }

    /// Offers these protocols (ALPN), or no ALPN extension if the list is empty.
    pub fn with_alpn(&self, protocols: &[&[u8]]) -> ClientTls {
        ClientTls::new(self.root.clone(), protocols, tokio_rustls::rustls::ALL_VERSIONS, None)
    }

    /// Offers only this version of TLS, and HTTP/1.1.
    pub fn with_version(&self, version: &'static SupportedProtocolVersion) -> ClientTls {
        ClientTls::new(self.root.clone(), &[b"http/1.1"], &[version], None)
    }

    /// Runs the TLS handshake.
    pub async fn connect(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(self.config.clone()).connect(self.server_name.clone(), stream).await
    }
}

/// The address of a server, and the client TLS settings if it uses TLS.
#[derive(Clone)]
pub struct ServerAddress {
    pub address: SocketAddr,
    pub client_tls: Option<ClientTls>,
}

impl ServerAddress {
    /// The scheme of its URLs.
    pub fn scheme(&self) -> &'static str {
        match self.client_tls {
            Some(_) => "https",
            None => "http",
        }
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> ServerAddress {
        ServerAddress { address, client_tls: None }
    }
}

/// DER as PEM (RFC 7468).
fn pem(kind: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

//! Chooses a certificate by the host name that a client asks for in its TLS handshake (SNI, RFC 6066).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// The certificates of all hosts.
pub(super) struct CertificateSet {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows `*.`.
    wildcard: HashMap<String, Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
}

impl CertificateSet {
    /// `None` without a certificate. Of several for one name, the first is used.
    pub(super) fn new(certificates: &[Certificate]) -> Option<Self> {
        let default = certificates.first()?.certified_key.clone();
        let (mut exact, mut wildcard) = (HashMap::new(), HashMap::new());
        for certificate in certificates {
            for name in certificate.dns_names() {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(suffix) => (&mut wildcard, suffix),
                    None => (&mut exact, name.as_str()),
                };
                names.entry(name.to_owned()).or_insert_with(|| certificate.certified_key.clone());
            }
        }
        Some(Self { exact, wildcard, default })
    }

    /// The certificate of a host: one that names it, or else one whose wildcard stands for its first label, or else the
    /// first of all.
    pub(super) fn choose(&self, host: Option<&str>) -> &Arc<CertifiedKey> {
        let host = host.unwrap_or_default().to_ascii_lowercase();
        let by_wildcard = || host.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        self.exact.get(&host).or_else(by_wildcard).unwrap_or(&self.default)
    }
}

impl fmt::Debug for CertificateSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateSet")
    }
}

impl ResolvesServerCert for CertificateSet {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.choose(hello.server_name()).clone())
    }
}

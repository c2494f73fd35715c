//! The signing keys: PKCS#8 files in `data_dir/keys`, one per key id, the newest of the configured
//! algorithm in use, all of them believed.

use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Serialize;

use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::secret::{random_name, source};
use crate::error::TokenFault;

/// What a signature is for. Each purpose has a header of its own, so that one cannot pass for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A caller's access token.
    Access,
    /// The gateway's word to an upstream.
    Assertion,
}

impl Purpose {
    fn kind(self) -> &'static str {
        match self {
            Purpose::Access => "at+jwt",
            Purpose::Assertion => "deskgate-assertion+jwt",
        }
    }
}

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// The folder or a file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not a key of the kind that its name says.
    #[error("{0}: not a PKCS#8 private key of the kind its name says")]
    NotAKey(PathBuf),
    /// A key cannot verify what it signed.
    #[error("key {0} failed its self-test")]
    SelfTest(String),
}

enum Pair {
    EdDSA(Box<Ed25519KeyPair>),
    ES256(Box<EcdsaKeyPair>),
}

/// One key pair.
pub struct Key {
    id: String,
    pair: Pair,
    public: Vec<u8>,
    access_header: String,
    assertion_header: String,
}

#[derive(Serialize)]
struct Header<'a> {
    typ: &'a str,
    alg: &'a str,
    kid: &'a str,
}

impl Key {
    fn from_pkcs8(id: &str, algorithm: TokenAlgorithm, document: &[u8]) -> Option<Self> {
        let (pair, public) = match algorithm {
            TokenAlgorithm::EdDSA => {
                let pair = Ed25519KeyPair::from_pkcs8(document).ok()?;
                let public = pair.public_key().as_ref().to_vec();
                (Pair::EdDSA(Box::new(pair)), public)
            }
            TokenAlgorithm::ES256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document).ok()?;
                let public = pair.public_key().as_ref().to_vec();
                (Pair::ES256(Box::new(pair)), public)
            }
        };
        let header = |purpose: Purpose| encode(&Header { typ: purpose.kind(), alg: name(algorithm), kid: id });
        Some(Self {
            id: id.to_owned(),
            pair,
            public,
            access_header: header(Purpose::Access),
            assertion_header: header(Purpose::Assertion),
        })
    }

    /// The key's id, the `kid` of what it signs.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn algorithm(&self) -> TokenAlgorithm {
        match self.pair {
            Pair::EdDSA(_) => TokenAlgorithm::EdDSA,
            Pair::ES256(_) => TokenAlgorithm::ES256,
        }
    }

    fn header(&self, purpose: Purpose) -> &str {
        match purpose {
            Purpose::Access => &self.access_header,
            Purpose::Assertion => &self.assertion_header,
        }
    }

    /// A signed JWT of these claims.
    pub fn sign(&self, purpose: Purpose, claims: &impl Serialize) -> String {
        let mut token = format!("{}.{}", self.header(purpose), encode(claims));
        let signature = match &self.pair {
            Pair::EdDSA(pair) => pair.sign(token.as_bytes()).as_ref().to_vec(),
            // Fails only without randomness; an empty signature is then refused by every reader.
            Pair::ES256(pair) => {
                pair.sign(&source(), token.as_bytes()).map(|signature| signature.as_ref().to_vec()).unwrap_or_default()
            }
        };
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }

    /// Whether this key signed the message.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.pair {
            Pair::EdDSA(_) => UnparsedPublicKey::new(&ED25519, &self.public).verify(message, signature).is_ok(),
            Pair::ES256(_) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public).verify(message, signature).is_ok()
            }
        }
    }

    fn works(&self) -> bool {
        let token = self.sign(Purpose::Assertion, &"self-test");
        token.rsplit_once('.').is_some_and(|(signed, signature)| {
            URL_SAFE_NO_PAD.decode(signature).is_ok_and(|signature| self.verify(signed.as_bytes(), &signature))
        })
    }

    /// The public half for `jwks.json`.
    pub fn jwk(&self) -> Jwk<'_> {
        let point = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(self.public.get(range).unwrap_or_default());
        let common = |kty, crv, x, y| Jwk { kty, crv, x, y, kid: &self.id, alg: name(self.algorithm()), usage: "sig" };
        match self.pair {
            Pair::EdDSA(_) => common("OKP", "Ed25519", URL_SAFE_NO_PAD.encode(&self.public), None),
            // 0x04, then the two coordinates of 32 bytes each.
            Pair::ES256(_) => common("EC", "P-256", point(1..33), Some(point(33..65))),
        }
    }
}

/// A public key as RFC 7517 writes it.
#[derive(Debug, Serialize)]
pub struct Jwk<'a> {
    kty: &'static str,
    crv: &'static str,
    x: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    kid: &'a str,
    alg: &'static str,
    #[serde(rename = "use")]
    usage: &'static str,
}

/// All keys of this gateway.
pub struct KeyRing {
    /// The one in use first.
    keys: Vec<Key>,
}

impl KeyRing {
    /// Reads the keys of a folder; makes the first one when there is none of this algorithm.
    pub fn open(folder: &Path, algorithm: TokenAlgorithm, now: Timestamp) -> Result<Self, KeyFault> {
        let fault = |path: &Path| {
            let path = path.to_owned();
            move |source| KeyFault::File { path, source }
        };
        create_private_folder(folder).map_err(fault(folder))?;
        let mut keys = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(fault(folder))? {
            let path = entry.map_err(fault(folder))?.path();
            if path.extension().is_some_and(|extension| extension == "pem") {
                let text = std::fs::read_to_string(&path).map_err(fault(&path))?;
                let key = parse(&path, &text).ok_or_else(|| KeyFault::NotAKey(path.clone()))?;
                keys.push(key);
            }
        }
        if !keys.iter().any(|key| key.algorithm() == algorithm) {
            let (id, pem) = make(algorithm, now).ok_or_else(|| KeyFault::NotAKey(folder.to_owned()))?;
            let path = folder.join(format!("{id}.pem"));
            write_private(&path, pem.as_bytes()).map_err(fault(&path))?;
            keys.push(parse(&path, &pem).ok_or(KeyFault::NotAKey(path))?);
        }
        if let Some(key) = keys.iter().find(|key| !key.works()) {
            return Err(KeyFault::SelfTest(key.id.clone()));
        }
        // Ids carry the time of their making: the newest of the wanted algorithm comes first.
        keys.sort_by(|a, b| {
            let wanted = |key: &Key| key.algorithm() == algorithm;
            wanted(b).cmp(&wanted(a)).then_with(|| b.id.cmp(&a.id))
        });
        Ok(Self { keys })
    }

    /// The key that signs.
    pub fn active(&self) -> &Key {
        // `open` never leaves the ring empty.
        &self.keys[0]
    }

    /// The key whose header this is, to the byte.
    pub fn find(&self, purpose: Purpose, header: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.header(purpose) == header)
    }

    /// The public halves.
    pub fn jwks(&self) -> Vec<Jwk<'_>> {
        self.keys.iter().map(Key::jwk).collect()
    }
}

/// For the log: whether a header is of a key that we do not have, or not of our making at all.
pub fn why_not_ours(header: &str) -> TokenFault {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Ours {
        typ: String,
        alg: String,
        #[serde(rename = "kid")]
        _kid: String,
    }
    let decoded = URL_SAFE_NO_PAD.decode(header).ok();
    match decoded.and_then(|json| serde_json::from_slice::<Ours>(&json).ok()) {
        Some(ours) if ours.typ == Purpose::Access.kind() && matches!(ours.alg.as_str(), "EdDSA" | "ES256") => {
            TokenFault::UnknownKey
        }
        _ => TokenFault::Header,
    }
}

fn name(algorithm: TokenAlgorithm) -> &'static str {
    match algorithm {
        TokenAlgorithm::EdDSA => "EdDSA",
        TokenAlgorithm::ES256 => "ES256",
    }
}

fn encode(value: &impl Serialize) -> String {
    // Our own plain structs: no map with foreign keys, nothing that cannot be written.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).unwrap_or_default())
}

/// A new key and its PEM file. The id sorts by time.
fn make(algorithm: TokenAlgorithm, now: Timestamp) -> Option<(String, String)> {
    let random = source();
    let document = match algorithm {
        TokenAlgorithm::EdDSA => Ed25519KeyPair::generate_pkcs8(&random).ok()?.as_ref().to_vec(),
        TokenAlgorithm::ES256 => {
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?.as_ref().to_vec()
        }
    };
    let id = format!("{}-{}-{}", name(algorithm).to_ascii_lowercase(), now.seconds(), random_name(6));
    let base64 = STANDARD.encode(document);
    let lines: Vec<&str> = (0..base64.len()).step_by(64).map(|at| &base64[at..base64.len().min(at + 64)]).collect();
    Some((id, format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))))
}

fn parse(path: &Path, text: &str) -> Option<Key> {
    let id = path.file_stem()?.to_str()?;
    let algorithm = match id.split('-').next()? {
        "eddsa" => TokenAlgorithm::EdDSA,
        "es256" => TokenAlgorithm::ES256,
        _ => return None,
    };
    let inside = text.trim().strip_prefix("-----BEGIN PRIVATE KEY-----")?.strip_suffix("-----END PRIVATE KEY-----")?;
    let base64: String = inside.split_whitespace().collect();
    Key::from_pkcs8(id, algorithm, &STANDARD.decode(base64).ok()?)
}

/// Creates a folder that only its owner can look into.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Writes a file that only its owner can read, all of it or none of it.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let unfinished = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}

//! The folder of key files: PKCS#8 in PEM, one file per key. Its name is the key's id and says when it begins to
//! sign, in milliseconds: `eddsa-1800000000000-x7Kq2a.pem`.

use std::io;
use std::path::Path;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::keys::{Key, name};
use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::secret::{random_name, source};
use crate::domain::session::KeyId;

/// A new key's id and the text of its file.
pub(super) fn make(algorithm: TokenAlgorithm, start: Timestamp) -> Option<(KeyId, String)> {
    let random = source();
    let document = match algorithm {
        TokenAlgorithm::EdDSA => Ed25519KeyPair::generate_pkcs8(&random).ok()?.as_ref().to_vec(),
        TokenAlgorithm::ES256 => {
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?.as_ref().to_vec()
        }
    };
    let id = format!("{}-{}-{}", name(algorithm).to_ascii_lowercase(), start.millis(), random_name(6));
    let base64 = STANDARD.encode(document);
    let lines: Vec<&str> = (0..base64.len()).step_by(64).map(|at| &base64[at..base64.len().min(at + 64)]).collect();
    Some((KeyId::new(id), format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))))
}

/// When the key of this file's name begins to sign.
pub(super) fn start_in(path: &Path) -> Option<Timestamp> {
    let millis = path.file_stem()?.to_str()?.split('-').nth(1)?.parse().ok()?;
    Some(Timestamp::from_millis(millis))
}

/// The key of a file.
pub(super) fn parse(path: &Path, text: &str) -> Option<Key> {
    let id = path.file_stem()?.to_str()?;
    let algorithm = match id.split('-').next()? {
        "eddsa" => TokenAlgorithm::EdDSA,
        "es256" => TokenAlgorithm::ES256,
        _ => return None,
    };
    let start = start_in(path)?;
    let inside = text.trim().strip_prefix("-----BEGIN PRIVATE KEY-----")?.strip_suffix("-----END PRIVATE KEY-----")?;
    let base64: String = inside.split_whitespace().collect();
    Key::from_pkcs8(id, start, algorithm, &STANDARD.decode(base64).ok()?)
}

/// Creates a folder that only its owner can look into.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // One that was there before may be open to others.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Writes a file that only its owner can read, all of it or none of it.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let unfinished = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Makes durable which files a folder holds: without it a power cut may bring a removed key back.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

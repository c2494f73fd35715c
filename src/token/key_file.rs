//! Key files: PKCS#8 in PEM, one file per key. The file name is the key id and carries the time from which the key
//! signs, in milliseconds: `eddsa-1800000000000-x7Kq2a.pem`. Also the private files and folders that others write.

use std::io;
use std::path::Path;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::keys::{SigningKey, algorithm_name};
use crate::config::TokenAlgorithm;
use crate::domain::clock::Timestamp;
use crate::domain::secret::{random_name, source};
use crate::domain::session::KeyId;

/// Generates a key pair; returns its id and the PEM text of its file.
pub(super) fn generate(algorithm: TokenAlgorithm, start: Timestamp) -> Option<(KeyId, String)> {
    let random = source();
    let document = match algorithm {
        TokenAlgorithm::EdDSA => Ed25519KeyPair::generate_pkcs8(&random).ok()?.as_ref().to_vec(),
        TokenAlgorithm::ES256 => {
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?.as_ref().to_vec()
        }
    };
    let id = format!("{}-{}-{}", algorithm_name(algorithm).to_ascii_lowercase(), start.millis(), random_name(6));
    let base64 = STANDARD.encode(document);
    let lines: Vec<&str> = (0..base64.len()).step_by(64).map(|at| &base64[at..base64.len().min(at + 64)]).collect();
    Some((KeyId::new(id), format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))))
}

/// The time in a key file's name from which the key signs.
pub(super) fn signs_from(path: &Path) -> Option<Timestamp> {
    let millis = path.file_stem()?.to_str()?.split('-').nth(1)?.parse().ok()?;
    Some(Timestamp::from_millis(millis))
}

/// Parses a key file.
pub(super) fn parse(path: &Path, text: &str) -> Option<SigningKey> {
    let id = path.file_stem()?.to_str()?;
    let algorithm = match id.split('-').next()? {
        "eddsa" => TokenAlgorithm::EdDSA,
        "es256" => TokenAlgorithm::ES256,
        _ => return None,
    };
    let signs_from = signs_from(path)?;
    let body = text.trim().strip_prefix("-----BEGIN PRIVATE KEY-----")?.strip_suffix("-----END PRIVATE KEY-----")?;
    let base64: String = body.split_whitespace().collect();
    SigningKey::from_pkcs8(id, signs_from, algorithm, &STANDARD.decode(base64).ok()?)
}

/// Creates a folder with mode 0700.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A folder that existed before may have a wider mode.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Writes a file with mode 0600 atomically and durably.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Syncs a folder, so that a power failure cannot bring a removed key back.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

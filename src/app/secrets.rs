//! Opens the keys of cookies, of one-time-password secrets, of callback results and of signing keys: derived from
//! `server.secret_file`, or else from files in the key folder, which the first start creates. Signing and encryption are
//! left to `token`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::StartError;
use super::error::data_error;
use crate::config::{Config, ServerConfig};
use crate::domain::secret::random_bytes;
use crate::token::cookie::CookieSigner;
use crate::token::key_file::{create_private_folder, write_private};
use crate::token::root_secret::{KeyPurpose, RootSecret};
use crate::token::vault::Vault;

/// The generated key that encrypts one-time-password secrets, in the folder of signing keys.
const GENERATED_VAULT_KEY: &str = "vault.key";

/// The generated key that signs cookies, in the same folder.
const GENERATED_COOKIE_KEY: &str = "seal.key";

/// The folder of the files that hold keys.
pub(super) fn key_folder(config: &Config) -> PathBuf {
    config.server.data_dir.join("keys")
}

/// The secrets of `server.secret_file` and `server.old_secret_files`.
pub(super) struct FleetSecrets {
    current: RootSecret,
    previous: Vec<RootSecret>,
}

impl FleetSecrets {
    /// Reads the files; `None` without `server.secret_file`.
    pub(super) fn read(config: &ServerConfig) -> Result<Option<Self>, StartError> {
        let Some(file) = config.secret_file() else { return Ok(None) };
        let previous = config.old_secret_files.iter().map(|file| read_secret("server.old_secret_files", file));
        Ok(Some(Self {
            current: read_secret("server.secret_file", file)?,
            previous: previous.collect::<Result<_, _>>()?,
        }))
    }

    /// What encrypts the signing keys in the directory.
    pub(super) fn key_vault(&self) -> Vault {
        let (current, previous) = self.derive(KeyPurpose::SigningKeys);
        Vault::new(&current, &previous)
    }

    fn derive(&self, purpose: KeyPurpose) -> ([u8; 32], Vec<[u8; 32]>) {
        let previous = self.previous.iter().map(|secret| secret.derive(purpose)).collect();
        (self.current.derive(purpose), previous)
    }
}

fn read_secret(key: &'static str, file: &Path) -> Result<RootSecret, StartError> {
    RootSecret::read(file).map_err(|source| StartError::SecretFile { key, source })
}

/// What signs cookies. With a fleet's secret the generated key only verifies: cookies from before it was set stay valid.
pub(super) fn cookies(config: &Config, secrets: Option<&FleetSecrets>) -> Result<CookieSigner, StartError> {
    let failed = data_error(&config.server.data_dir);
    let file = key_folder(config).join(GENERATED_COOKIE_KEY);
    let generated = read_if_exists(&file, read_raw_key).map_err(&failed)?;
    let (current, mut previous) = match (secrets, generated) {
        (Some(secrets), _) => secrets.derive(KeyPurpose::Cookies),
        (None, Some(key)) => return Ok(CookieSigner::new(&key, &[])),
        (None, None) => (generate(&file, |key| key.to_vec()).map_err(&failed)?, Vec::new()),
    };
    previous.extend(generated);
    Ok(CookieSigner::new(&current, &previous))
}

/// What encrypts one-time-password secrets: the fleet's secret, `otp.key_file` or a generated key, in this order. The
/// generated key and `otp.old_key_files` only decrypt where another key encrypts.
pub(super) fn vault(config: &Config, secrets: Option<&FleetSecrets>) -> Result<Arc<Vault>, StartError> {
    open_vault(config, secrets).map(Arc::new).map_err(data_error(&config.server.data_dir))
}

/// What encrypts the results of callbacks. Without a fleet's secret nobody else reads them, and none outlives the process.
pub(super) fn callback_vault(secrets: Option<&FleetSecrets>) -> Vault {
    let (current, previous) =
        secrets.map_or_else(|| (random_bytes(), Vec::new()), |secrets| secrets.derive(KeyPurpose::CallbackResults));
    Vault::new(&current, &previous)
}

fn open_vault(config: &Config, secrets: Option<&FleetSecrets>) -> io::Result<Vault> {
    let file = key_folder(config).join(GENERATED_VAULT_KEY);
    let generated = read_if_exists(&file, read_key)?;
    let mut older = config.otp.old_key_files.iter().map(|file| read_key(file)).collect::<io::Result<Vec<_>>>()?;
    let current = match (secrets, config.otp.key_file.as_os_str().is_empty()) {
        (Some(secrets), _) => {
            let (current, previous) = secrets.derive(KeyPurpose::OneTimePasswords);
            older.extend(previous);
            current
        }
        (None, false) => read_key(&config.otp.key_file)?,
        (None, true) => match generated {
            Some(key) => return Ok(Vault::new(&key, &older)),
            None => generate(&file, |key| STANDARD.encode(key).into_bytes())?,
        },
    };
    older.extend(generated);
    Ok(Vault::new(&current, &older))
}

/// Creates a key file.
fn generate(file: &Path, encode: impl FnOnce(&[u8; 32]) -> Vec<u8>) -> io::Result<[u8; 32]> {
    let key = random_bytes::<32>();
    file.parent().map_or(Ok(()), create_private_folder)?;
    write_private(file, &encode(&key))?;
    Ok(key)
}

fn read_if_exists(file: &Path, read: fn(&Path) -> io::Result<[u8; 32]>) -> io::Result<Option<[u8; 32]>> {
    if file.try_exists()? { read(file).map(Some) } else { Ok(None) }
}

/// Reads a key file: 32 bytes in base64.
pub(super) fn read_key(file: &Path) -> io::Result<[u8; 32]> {
    let text = std::fs::read_to_string(file).map_err(named(file))?;
    let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    bytes.ok_or_else(|| named(file)(io::Error::new(io::ErrorKind::InvalidData, "must hold 32 bytes in base64")))
}

/// Reads a key file: 32 bytes as they are.
fn read_raw_key(file: &Path) -> io::Result<[u8; 32]> {
    let bytes = std::fs::read(file).map_err(named(file))?;
    let invalid = |_| named(file)(io::Error::new(io::ErrorKind::InvalidData, "must hold 32 bytes"));
    <[u8; 32]>::try_from(bytes).map_err(invalid)
}

fn named(file: &Path) -> impl Fn(io::Error) -> io::Error {
    let file: PathBuf = file.to_owned();
    move |error| io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}

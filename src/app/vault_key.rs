//! Reads the keys that encrypt one-time-password secrets at rest, and creates one on the first start. Encryption itself
//! is left to `token::vault`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::config::OtpConfig;
use crate::domain::secret::random_bytes;
use crate::token::key_file;
use crate::token::vault::Vault;

/// The generated key, in the folder of signing keys.
const GENERATED_KEY: &str = "vault.key";

/// Opens the vault with `otp.key_file`, or with a generated key. Once `otp.key_file` is set, the generated key only
/// decrypts.
pub(super) fn open(config: &OtpConfig, folder: &Path) -> io::Result<Arc<Vault>> {
    let generated = folder.join(GENERATED_KEY);
    let mut older = config.old_key_files.iter().map(|file| read(file)).collect::<io::Result<Vec<_>>>()?;
    let current = if config.key_file.as_os_str().is_empty() {
        if !generated.try_exists()? {
            key_file::write_private(&generated, STANDARD.encode(random_bytes::<32>()).as_bytes())?;
        }
        read(&generated)?
    } else {
        if generated.try_exists()? {
            older.push(read(&generated)?);
        }
        read(&config.key_file)?
    };
    Ok(Arc::new(Vault::new(&current, &older)))
}

/// Reads a key file: 32 bytes in base64.
pub(super) fn read(file: &Path) -> io::Result<[u8; 32]> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidData, format!("{}: must hold 32 bytes in base64", file.display()));
    bytes.ok_or_else(invalid)
}

//! The concrete backends behind the traits: the only file that names them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::simulator::{self, Simulator};
use super::{DataLock, StartFault, key_settings, open_keys};
use crate::config::{Config, PlatformKind};
use crate::directory::sql::SqlDirectory;
use crate::directory::{Directory, DirectoryError};
use crate::domain::clock::Clock;
use crate::domain::secret::random_bytes;
use crate::operate::keys::KeyDesk;
use crate::operate::{self, Operator};
use crate::platform::Platform;
use crate::platform::wecom::{WecomPlatform, WecomSettings};
use crate::signin::devices::Devices;
use crate::signin::password::{PasswordSettings, Passwords};
use crate::store::Store;
use crate::store::embedded::EmbeddedStore;
use crate::store::live::Live;
use crate::token::Tokens;
use crate::token::key_file;
use crate::token::vault::Vault;

pub(super) async fn open_store(data: &Path, clock: &Clock) -> Result<Arc<dyn Store>, StartFault> {
    let path = data.join("state.db");
    match EmbeddedStore::open(&path, clock.clone()).await {
        Ok(store) => Ok(Arc::new(store)),
        Err(source) => Err(StartFault::Store { path, source }),
    }
}

pub(super) async fn open_directory(config: &Config, clock: &Clock) -> Result<Arc<dyn Directory>, StartFault> {
    let fault = |source| in_directory(config, source);
    let directory = SqlDirectory::open(&directory_file(config), clock.clone()).await.map_err(fault)?;
    if config.server.development {
        directory.fill_for_development().await.map_err(fault)?;
    }
    Ok(Arc::new(directory))
}

fn directory_file(config: &Config) -> PathBuf {
    config.server.data_dir.join(config.directory.file().unwrap_or_default())
}

pub(super) fn in_directory(config: &Config, source: DirectoryError) -> StartFault {
    StartFault::Directory { path: directory_file(config), source }
}

/// The vault for secrets at rest, with the configured key or one of its own. Where a key is configured, the one of
/// its own is an older one.
pub(super) fn open_vault(config: &Config, folder: &Path) -> io::Result<Arc<Vault>> {
    let (configured, own) = (&config.otp.key_file, folder.join("vault.key"));
    let mut older = config.otp.old_key_files.iter().map(|file| vault_key(file)).collect::<io::Result<Vec<_>>>()?;
    let current = if configured.as_os_str().is_empty() {
        if !own.try_exists()? {
            key_file::write_private(&own, STANDARD.encode(random_bytes::<32>()).as_bytes())?;
        }
        vault_key(&own)?
    } else {
        if own.try_exists()? {
            older.push(vault_key(&own)?);
        }
        vault_key(configured)?
    };
    Ok(Arc::new(Vault::new(&current, &older)))
}

fn vault_key(file: &Path) -> io::Result<[u8; 32]> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let why =
        || io::Error::new(io::ErrorKind::InvalidData, format!("{}: must hold 32 bytes in base64", file.display()));
    bytes.ok_or_else(why)
}

/// What commands need when no gateway runs: the same backends, with the lock held.
pub async fn open_offline(config: &Config) -> Result<(Operator, DataLock), StartFault> {
    let clock = Clock::system();
    let data = &config.server.data_dir;
    let in_data = |source| StartFault::Data { path: data.clone(), source };
    DataLock::prepare_for_command(data)?;
    let lock = DataLock::take(data)?;
    let keys = open_keys(config, clock.now())?;
    let store = open_store(data, &clock).await?;
    let directory = open_directory(config, &clock).await?;
    let live = Arc::new(Live::new(store, config.token.cache, config.token.lifetime.get()));
    let vault = open_vault(config, &data.join("keys")).map_err(in_data)?;
    let tokens = Arc::new(Tokens::new(keys, String::new(), config.token.leeway.get()));
    let operator = Operator::new(operate::Parts {
        live: live.clone(),
        directory: directory.clone(),
        default_role: config.directory.fallback_role(),
        main_corp: config.platform.main_corp(),
        devices: Devices::new(directory, vault, clock.clone(), config.otp.issuer.clone()),
        passwords: Arc::new(Passwords::new(PasswordSettings::default())),
        keys: Arc::new(KeyDesk::new(key_settings(config), tokens, live, clock)),
    });
    Ok((operator, lock))
}

pub(super) async fn open_platform(config: &Config) -> Result<(Arc<dyn Platform>, Option<Simulator>), StartFault> {
    let agent_id = (!config.platform.agent_id.is_empty()).then(|| config.platform.agent_id.clone());
    let (settings, simulator) = match config.platform.kind {
        PlatformKind::Simulated => {
            let (simulator, settings) = simulator::start(config).await?;
            (settings, Some(simulator))
        }
        PlatformKind::Wecom => {
            let file = config.platform.secret_file.clone();
            let secret = config.platform.read_secret().map_err(|source| StartFault::Data { path: file, source })?;
            let settings = WecomSettings {
                corp_id: config.platform.main_corp(),
                agent_id,
                secret,
                authorize_url: config.platform.authorize_url.clone(),
                api_url: config.platform.api_url.clone(),
                timeout: config.platform.timeout.get(),
            };
            (settings, None)
        }
    };
    Ok((Arc::new(WecomPlatform::new(settings)?), simulator))
}

//! The settings that name files and folders. A relative path starts at the folder of the configuration file, whatever the
//! working directory of the process is; one from `--set` starts at the working directory, as a path in a command does.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::Config;

/// The files of `server.tls`, each of which `--set` can give alone.
const CERTIFICATE_KEYS_OF_TLS: [&str; 3] = ["server.tls.cert_file", "server.tls.key_file", "server.tls.ocsp_file"];

impl Config {
    /// Every path with its key. An empty one stands for none.
    pub(super) fn paths_mut(&mut self) -> Vec<(Cow<'static, str>, &mut PathBuf)> {
        let Self { server, platform, otp, store, directory, rules, audit, upstreams, .. } = self;
        let mut paths = vec![
            ("server.data_dir", &mut server.data_dir),
            ("server.secret_file", &mut server.secret_file),
            ("platform.secret_file", &mut platform.secret_file),
            ("otp.key_file", &mut otp.key_file),
            ("store.password_file", &mut store.password_file),
            ("store.ca_file", &mut store.ca_file),
            ("directory.password_file", &mut directory.password_file),
            ("directory.ca_file", &mut directory.ca_file),
            ("rules.dir", &mut rules.dir),
            ("audit.file", &mut audit.file),
            ("audit.syslog_socket", &mut audit.syslog_socket),
        ];
        paths.extend(server.old_secret_files.iter_mut().map(|file| ("server.old_secret_files", file)));
        paths.extend(otp.old_key_files.iter_mut().map(|file| ("otp.old_key_files", file)));
        paths.extend(server.listeners.iter_mut().map(|listener| ("server.listeners", &mut listener.client_ca_file)));
        let short = server.tls.iter_mut().map(|certificate| (CERTIFICATE_KEYS_OF_TLS, certificate));
        let listed = server.certificates.iter_mut().map(|certificate| (["server.certificates"; 3], certificate));
        for ([cert_file, key_file, ocsp_file], certificate) in short.chain(listed) {
            paths.push((cert_file, &mut certificate.cert_file));
            paths.push((key_file, &mut certificate.key_file));
            paths.push((ocsp_file, &mut certificate.ocsp_file));
        }
        let mut paths: Vec<_> = paths.into_iter().map(|(key, path)| (Cow::Borrowed(key), path)).collect();
        for (name, upstream) in upstreams {
            let Some(tls) = &mut upstream.tls else { continue };
            let files =
                [("ca_file", &mut tls.ca_file), ("cert_file", &mut tls.cert_file), ("key_file", &mut tls.key_file)];
            paths.extend(files.map(|(key, path)| (format!("upstreams.{name}.tls.{key}").into(), path)));
        }
        paths
    }

    /// The files that hold secrets and private keys, with their keys in the configuration.
    pub fn secret_files(&self) -> Vec<(Cow<'static, str>, &Path)> {
        let Self { server, platform, otp, store, directory, upstreams, .. } = self;
        let mut files = vec![
            ("server.secret_file", &server.secret_file),
            ("platform.secret_file", &platform.secret_file),
            ("otp.key_file", &otp.key_file),
            ("store.password_file", &store.password_file),
            ("directory.password_file", &directory.password_file),
        ];
        files.extend(server.old_secret_files.iter().map(|file| ("server.old_secret_files", file)));
        files.extend(otp.old_key_files.iter().map(|file| ("otp.old_key_files", file)));
        files.extend(server.tls.iter().map(|certificate| ("server.tls.key_file", &certificate.key_file)));
        files.extend(server.certificates.iter().map(|certificate| ("server.certificates", &certificate.key_file)));
        let mut files: Vec<_> = files.into_iter().map(|(key, file)| (Cow::Borrowed(key), file.as_path())).collect();
        for (name, upstream) in upstreams {
            files.extend(
                upstream
                    .tls
                    .iter()
                    .map(|tls| (format!("upstreams.{name}.tls.key_file").into(), tls.key_file.as_path())),
            );
        }
        files.retain(|(_, file)| !file.as_os_str().is_empty());
        files
    }

    /// Lets relative paths start at a folder, but for those of keys that `--set` gave.
    pub(super) fn resolve_paths(&mut self, folder: &Path, is_overridden: impl Fn(&str) -> bool) {
        for (key, path) in self.paths_mut() {
            if !path.as_os_str().is_empty() && !is_overridden(&key) {
                *path = folder.join(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests;

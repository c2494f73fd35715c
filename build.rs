//! Compiles the commit and the build time into the program, for `/version`.

use std::path::Path;
use std::process::Command;
use std::time::UNIX_EPOCH;

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=DESKGATE_COMMIT={commit}");
    println!("cargo:rustc-env=DESKGATE_BUILT={}", seconds_since_1970());
    // The log of HEAD changes with every commit, while HEAD itself only names the branch. A missing file would rebuild
    // every time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists());
    if let Some(log) = log {
        println!("cargo:rerun-if-changed={log}");
    }
    println!("cargo:rerun-if-changed=Cargo.toml");
}

#[expect(clippy::disallowed_methods, reason = "a build script cannot use the crate's clock")]
fn seconds_since_1970() -> u64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

/// Runs git and returns its output; `None` without git or outside a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

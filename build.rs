//! Compiles the commit and the build time into the program, for `/version`.
//!
//! `DESKGATE_COMMIT` and `SOURCE_DATE_EPOCH` set both for builds outside of a repository: from an archive, in a container.

use std::path::Path;
use std::process::Command;
use std::time::UNIX_EPOCH;

/// The length of an abbreviated commit.
const COMMIT_LENGTH: usize = 12;

fn main() {
    let commit = variable("DESKGATE_COMMIT").or_else(commit_of_repository).unwrap_or_else(|| "unknown".to_owned());
    let commit: String = commit.chars().take(COMMIT_LENGTH).collect();
    println!("cargo:rustc-env=DESKGATE_COMMIT={commit}");
    let built = variable("SOURCE_DATE_EPOCH").and_then(|seconds| seconds.parse().ok()).unwrap_or_else(now);
    println!("cargo:rustc-env=DESKGATE_BUILT={built}");
    // The log of HEAD changes with every commit, while HEAD itself only names the branch. A missing file would rebuild
    // every time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists());
    if let Some(log) = log {
        println!("cargo:rerun-if-changed={log}");
    }
    println!("cargo:rerun-if-changed=Cargo.toml");
}

/// An environment variable, unless it is empty. A change of it builds the program again.
fn variable(name: &str) -> Option<String> {
    println!("cargo:rerun-if-env-changed={name}");
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The commit of the repository whose root this folder is. An archive that was unpacked inside of another repository
/// has nothing to do with that one's commit.
fn commit_of_repository() -> Option<String> {
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let is_ours = Path::new(&root).canonicalize().ok()? == Path::new(".").canonicalize().ok()?;
    git(&["rev-parse", "HEAD"]).filter(|_| is_ours)
}

#[expect(clippy::disallowed_methods, reason = "a build script cannot use the crate's clock")]
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

/// Runs git and returns its output; `None` without git or outside a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

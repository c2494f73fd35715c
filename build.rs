//! Tells the program from which commit and when it was built.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let built = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    println!("cargo:rustc-env=DESKGATE_COMMIT={commit}");
    println!("cargo:rustc-env=DESKGATE_BUILT={built}");
    // The log of HEAD grows with every commit; HEAD itself names only the branch. A file that is not there
    // would mean a new build every time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|path| Path::new(path).exists());
    if let Some(log) = log {
        println!("cargo:rerun-if-changed={log}");
    }
    println!("cargo:rerun-if-changed=Cargo.toml");
}

/// What git says, if there is one and it is asked in a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

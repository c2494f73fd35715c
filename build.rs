//! Tells the program from which commit and when it was built.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    let commit = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned());
    let built = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    println!("cargo:rustc-env=DESKGATE_COMMIT={commit}");
    println!("cargo:rustc-env=DESKGATE_BUILT={built}");
    // The log of HEAD grows with every commit; HEAD itself names only the branch.
    println!("cargo:rerun-if-changed=.git/logs/HEAD");
    println!("cargo:rerun-if-changed=Cargo.toml");
}

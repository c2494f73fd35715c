//! How deskgate is built: the oldest Rust, and from the lock file only.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{output, packages, read, repository};
use crate::policy::Version;

/// `rust-version` of `Cargo.toml`.
fn oldest_rust() -> String {
    let manifest: toml::Table = toml::from_str(&read("Cargo.toml")).expect("Cargo.toml");
    manifest["package"]["rust-version"].as_str().expect("text").to_owned()
}

#[test]
fn the_oldest_rust_is_the_same_everywhere() {
    let oldest = oldest_rust();
    for (file, text) in [
        ("README.md", format!("Rust {oldest} or later")),
        ("README.zh-CN.md", format!("Rust {oldest} 或更高版本")),
        ("CONTRIBUTING.md", format!("Rust {oldest} or later")),
        ("deploy/Containerfile", format!("FROM rust:{oldest}.0-")),
    ] {
        assert!(read(file).contains(&text), "{file} does not have `{text}`");
    }
    // Without `msrv`, clippy goes by Cargo.toml.
    let clippy: toml::Table = toml::from_str(&read("clippy.toml")).expect("clippy.toml");
    assert!(clippy.get("msrv").is_none_or(|msrv| msrv.as_str() == Some(&oldest)), "clippy.toml has another msrv");
}

#[test]
fn no_dependency_needs_a_later_rust() {
    let oldest = Version::parse(&oldest_rust());
    let later: Vec<String> = packages()
        .into_iter()
        .filter(|package| package.rust_version.as_deref().is_some_and(|version| Version::parse(version) > oldest))
        .map(|package| format!("{} {}", package.name, package.version))
        .collect();
    assert!(later.is_empty(), "{later:?}");
}

/// `make msrv` builds with exactly the oldest Rust, wherever the tests run.
#[test]
fn the_tests_run_on_a_rust_that_is_supported() {
    let version = output(Command::new("rustc").arg("--version"));
    let version = Version::parse(version.split(' ').nth(1).expect("a version"));
    assert!(version >= Version::parse(&oldest_rust()));
}

/// Commands of cargo that read the lock file and are not called with `--locked`, in a shell or as a list of a script.
fn builds_without_lock(text: &str) -> Vec<String> {
    const COMMANDS: [&str; 10] =
        ["bench", "build", "check", "clippy", "metadata", "nextest run", "run", "rustc", "test", "tree"];
    let is_unlocked = |command: &&str| {
        let words = command.replace("\", \"", " ");
        let runs = |name: &str| {
            let mut places = words.match_indices(name);
            places.any(|(start, found)| !words[start + found.len()..].starts_with(char::is_alphanumeric))
        };
        COMMANDS.iter().any(|name| runs(&format!("cargo {name}"))) && !words.contains("--locked")
    };
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split("; ")).filter(is_unlocked).map(str::to_owned).collect()
}

/// The scripts of a folder and its subfolders.
fn scripts(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            scripts(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "py" || extension == "sh") {
            files.push(path);
        }
    }
}

#[test]
fn every_build_uses_the_lock_file() {
    let mut files = vec![repository().join("Makefile"), repository().join("deploy/Containerfile")];
    for folder in ["benches", "deploy", "tests"] {
        scripts(&repository().join(folder), &mut files);
    }
    assert!(files.len() > 10, "only {} files were found", files.len());
    for file in files {
        let faults = builds_without_lock(&std::fs::read_to_string(&file).expect("text"));
        assert!(faults.is_empty(), "{} builds without --locked:\n{}", file.display(), faults.join("\n"));
    }
}

#[test]
fn a_build_without_the_lock_file_is_found() {
    let table = [
        ("\tcargo build --release", true),
        ("\tcargo build --release --locked", false),
        ("\tcargo run -- demo", true),
        ("RUN cargo build --locked --no-default-features", false),
        ("[\"cargo\", \"build\", \"--release\"]", true),
        ("[\"cargo\", \"build\", \"--locked\"]", false),
        ("# as `cargo build` does", false),
        ("\tcargo builder", false),
        ("\tcargo fmt --check", false),
        ("\tcargo nextest run", true),
        ("\tcargo nextest --version", false),
        ("\tif true; then cargo nextest run --locked; else cargo test; fi", true),
    ];
    for (line, found) in table {
        assert_eq!(!builds_without_lock(line).is_empty(), found, "{line}");
    }
}

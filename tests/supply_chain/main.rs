//! The supply chain: what deskgate depends on, how it is built, and what its packages contain.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod build_script;
mod cargo;
mod package;
mod policy;
mod profile;
mod sbom;
mod toolchain;

use cargo::{Package, cargo, compiled_packages, host, locked_packages, output, packages, read, repository};
use policy::{Policy, is_satisfied};

fn policy() -> Policy {
    Policy::parse(&read("deny.toml"))
}

fn assert_no_faults(faults: &[String]) {
    assert!(faults.is_empty(), "deny.toml does not permit this:\n{}", faults.join("\n"));
}

#[test]
fn every_licence_is_permitted() {
    let packages = packages();
    assert!(packages.len() > 200, "only {} packages were read", packages.len());
    assert_no_faults(&policy().license_faults(&packages));
}

#[test]
fn every_package_comes_from_the_registry_and_none_is_known_to_be_vulnerable() {
    for file in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let packages = locked_packages(file);
        assert!(packages.len() > 200, "only {} packages were read from {file}", packages.len());
        assert_no_faults(&policy().source_faults(&packages));
        assert_no_faults(&policy().version_faults(&packages));
    }
}

#[test]
fn crates_of_several_versions_are_listed_with_a_reason() {
    assert_no_faults(&policy().duplicate_faults(&compiled_packages(), &locked_packages("Cargo.lock")));
}

/// The whole policy, by cargo-deny itself. Advisories are checked if a database is there; nothing is downloaded.
#[test]
fn cargo_deny_agrees_if_it_is_installed() {
    if !cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("cargo-deny is not installed: only the tests beside this one check deny.toml");
        return;
    }
    let database = std::env::var_os("ADVISORY_DB").map_or_else(|| repository().join("target/advisory-db"), Into::into);
    let mut command = cargo();
    command.args(["deny", "--locked", "--offline", "--target", &host(), "check", "licenses", "bans", "sources"]);
    if database.is_dir() {
        command.arg("advisories");
    } else {
        eprintln!("{} does not exist: advisories are not checked", database.display());
    }
    output(&mut command);
}

/// A package of the registry.
fn package(name: &str, version: &str) -> Package {
    Package {
        name: name.to_owned(),
        version: version.to_owned(),
        source: Some("registry+https://github.com/rust-lang/crates.io-index".to_owned()),
        license: Some("MIT".to_owned()),
        rust_version: None,
        has_checksum: true,
    }
}

#[test]
fn a_licence_that_is_not_permitted_is_a_fault() {
    let table: &[(&str, &str, Option<&str>, bool)] = &[
        ("one of the list", "some", Some("MIT"), true),
        ("copyleft", "some", Some("GPL-3.0-only"), false),
        ("none", "some", None, false),
        ("an exception", "webdriver", Some("MPL-2.0"), true),
        ("the exception of another crate", "some", Some("MPL-2.0"), false),
    ];
    for (case, name, license, permitted) in table {
        let package = Package { license: license.map(str::to_owned), ..package(name, "1.0.0") };
        assert_eq!(policy().license_faults(&[package]).is_empty(), *permitted, "{case}");
    }
}

#[test]
fn licence_expressions_are_evaluated() {
    let accepted = |id: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&id);
    let table = [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only/MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("MIT AND ISC", true),
        ("(MIT OR GPL-3.0-only) AND ISC", true),
        ("MIT AND (GPL-3.0-only OR Zlib)", false),
        // AND binds closer than OR.
        ("MIT OR GPL-3.0-only AND Zlib", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("MIT WITH LLVM-exception", false),
    ];
    for (expression, expected) in table {
        assert_eq!(is_satisfied(expression, &accepted), expected, "{expression}");
    }
}

#[test]
fn a_package_from_elsewhere_is_a_fault() {
    let registry = "registry+https://github.com/rust-lang/crates.io-index";
    let table: &[(&str, &str, Option<&str>, bool, bool)] = &[
        ("the registry", "some", Some(registry), true, true),
        ("without a checksum", "some", Some(registry), false, false),
        ("another registry", "some", Some("registry+https://crates.example.com/index"), true, false),
        ("a repository", "some", Some("git+https://git.example.com/some#0123"), false, false),
        ("a folder", "some", None, false, false),
        ("this repository", "deskgate", None, false, true),
    ];
    for (case, name, source, has_checksum, permitted) in table {
        let package =
            Package { source: source.map(str::to_owned), has_checksum: *has_checksum, ..package(name, "1.0.0") };
        assert_eq!(policy().source_faults(&[package]).is_empty(), *permitted, "{case}");
    }
}

#[test]
fn vulnerable_versions_and_pre_releases_are_faults() {
    let table = [
        ("h2", "0.4.15", false),
        ("h2", "0.4.16", true),
        ("h2", "0.4.16-rc.1", false),
        ("h2", "0.10.0", true),
        ("rustls-webpki", "0.103.12", false),
        ("rustls-webpki", "0.103.13", true),
        ("aws-lc-sys", "0.38.9", false),
        ("aws-lc-sys", "0.39.0", true),
        ("jsonwebtoken", "10.2.0", false),
        ("jsonwebtoken", "10.3.0", true),
        ("sqlx", "0.8.0", false),
        ("sqlx", "0.8.1", true),
        ("lru", "0.16.4", false),
        ("rsa", "0.9.8", false),
        ("rsa", "99.0.0", false),
        ("some", "1.0.0", true),
        ("some", "2.0.0-alpha.1", false),
        ("some", "1.1.8+spec-1.1.0", true),
    ];
    for (name, version, permitted) in table {
        assert_eq!(policy().version_faults(&[package(name, version)]).is_empty(), permitted, "{name} {version}");
    }
}

#[test]
fn duplicates_without_a_reason_and_reasons_without_a_duplicate_are_faults() {
    let deny = read("deny.toml");
    let (before, _) = deny.split_once("\nskip = [").expect("a list");
    let policy = Policy::parse(&format!("{before}\nskip = [{{ crate = \"old:0.2\", reason = \"some\" }}]"));
    type Row = (&'static str, &'static [(&'static str, &'static str)], bool);
    let table: &[Row] = &[
        ("listed", &[("old", "0.2.7"), ("old", "0.3.0")], true),
        ("a third version", &[("old", "0.2.7"), ("old", "0.3.0"), ("old", "0.4.0")], false),
        ("another crate", &[("old", "0.2.7"), ("old", "0.3.0"), ("new", "1.0.0"), ("new", "2.0.0")], false),
        ("the listed version is gone", &[("old", "0.3.0"), ("old", "0.4.0")], false),
        ("only the listed version is left", &[("old", "0.2.7")], false),
    ];
    for (case, versions, permitted) in table {
        let packages: Vec<Package> = versions.iter().map(|(name, version)| package(name, version)).collect();
        assert_eq!(policy.duplicate_faults(&packages, &packages).is_empty(), *permitted, "{case}");
    }
}

//! What cargo knows about the dependencies.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A package of the dependency graph or of `Cargo.lock`.
#[derive(Clone)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// `None` for packages of this repository.
    pub source: Option<String>,
    pub license: Option<String>,
    pub rust_version: Option<String>,
    /// Only `Cargo.lock` has checksums; true for packages that were not read from it.
    pub has_checksum: bool,
}

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of this repository.
pub fn read(file: &str) -> String {
    std::fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Cargo in this repository, without the compiler wrapper of `make test`.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repository()).env_remove("RUSTC_WORKSPACE_WRAPPER");
    command
}

/// The output of a command that must succeed.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The platform that this machine builds for. Crates of other platforms need not be downloaded.
pub fn host() -> String {
    let version = output(Command::new("rustc").arg("-vV"));
    version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host").to_owned()
}

/// Every package that can be part of a build on this platform, for tests too.
pub fn packages() -> Vec<Package> {
    let metadata = output(
        cargo()
            .args(["metadata", "--locked", "--offline", "--format-version", "1"])
            .args(["--filter-platform", &host()]),
    );
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array().expect("packages").iter();
    packages
        .map(|package| Package {
            name: text(&package["name"]).expect("a name"),
            version: text(&package["version"]).expect("a version"),
            source: text(&package["source"]),
            license: text(&package["license"]),
            rust_version: text(&package["rust_version"]),
            has_checksum: true,
        })
        .collect()
}

/// The packages that the program is compiled from, on this platform and with its default features.
pub fn compiled_packages() -> Vec<Package> {
    let tree = output(cargo().args(["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none"]));
    let lines: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let package = |(name, version): (&str, &str)| Package {
        name: name.to_owned(),
        version: version.to_owned(),
        source: None,
        license: None,
        rust_version: None,
        has_checksum: true,
    };
    lines.into_iter().map(package).collect()
}

/// Every package of a lock file, for all platforms.
pub fn locked_packages(file: &str) -> Vec<Package> {
    let lock: toml::Table = toml::from_str(&read(file)).expect("a lock file");
    let text = |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let packages = lock["package"].as_array().expect("packages").iter();
    packages
        .map(|package| Package {
            name: text(package, "name").expect("a name"),
            version: text(package, "version").expect("a version"),
            source: text(package, "source"),
            license: None,
            rust_version: None,
            has_checksum: package.get("checksum").is_some(),
        })
        .collect()
}

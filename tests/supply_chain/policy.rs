//! `deny.toml`, as far as it can be checked without cargo-deny: licences, sources, versions and duplicates.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::cargo::Package;

/// What `deny.toml` says.
pub struct Policy {
    licenses: BTreeSet<String>,
    /// Licences that are accepted for one crate only.
    license_exceptions: BTreeMap<String, BTreeSet<String>>,
    registries: Vec<String>,
    denied: Vec<Entry>,
    /// Versions that may stand beside others of the same crate.
    duplicates: Vec<Entry>,
}

/// `{ crate = "NAME:REQUIREMENT", reason = "…" }`
struct Entry {
    name: String,
    versions: Versions,
    reason: String,
}

/// The requirements that `deny.toml` uses.
enum Versions {
    All,
    /// `<0.4.16`
    Below(Version),
    /// `0.22`: this and everything that is compatible with it.
    Compatible(Version),
}

#[derive(PartialEq, Eq)]
pub struct Version {
    numbers: [u64; 3],
    pre_release: Option<String>,
}

impl Version {
    /// Reads `1`, `1.2`, `1.2.3`, `1.2.3-alpha.1` and `1.2.3+metadata`.
    pub fn parse(text: &str) -> Self {
        let (text, pre_release) = match text.split('+').next().unwrap_or_default().split_once('-') {
            Some((numbers, pre_release)) => (numbers, Some(pre_release.to_owned())),
            None => (text.split('+').next().unwrap_or_default(), None),
        };
        let mut numbers = [0; 3];
        let parts: Vec<&str> = text.split('.').collect();
        assert!(parts.len() <= numbers.len(), "{text} is not a version");
        for (number, part) in numbers.iter_mut().zip(parts) {
            *number = part.parse().unwrap_or_else(|_| panic!("{text} is not a version"));
        }
        Self { numbers, pre_release }
    }

    /// The numbers that a compatible version has in common: those up to the first that is not 0.
    fn compatible_part(&self) -> &[u64] {
        let first = self.numbers.iter().position(|number| *number > 0).unwrap_or(2);
        &self.numbers[..=first]
    }
}

impl PartialOrd for Version {
    /// A pre-release comes before its release; two pre-releases of one version are not told apart.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let release = |version: &Self| version.pre_release.is_none();
        Some(self.numbers.cmp(&other.numbers).then(release(self).cmp(&release(other))))
    }
}

impl Entry {
    fn matches(&self, package: &Package) -> bool {
        let version = Version::parse(&package.version);
        package.name == self.name
            && match &self.versions {
                Versions::All => true,
                Versions::Below(floor) => version < *floor,
                Versions::Compatible(with) => version.compatible_part() == with.compatible_part(),
            }
    }

    fn list(value: &toml::Value) -> Vec<Self> {
        let entry = |value: &toml::Value| {
            let spec = value["crate"].as_str().expect("a crate");
            let (name, versions) = match spec.split_once(':') {
                None => (spec, Versions::All),
                Some((name, requirement)) => match requirement.strip_prefix('<') {
                    Some(floor) => (name, Versions::Below(Version::parse(floor))),
                    None => (name, Versions::Compatible(Version::parse(requirement))),
                },
            };
            let reason = value.get("reason").and_then(toml::Value::as_str).unwrap_or_default();
            assert!(!reason.is_empty(), "{spec} has no reason in deny.toml");
            Self { name: name.to_owned(), versions, reason: reason.to_owned() }
        };
        value.as_array().expect("a list").iter().map(entry).collect()
    }
}

fn strings(value: &toml::Value) -> Vec<String> {
    let text = |value: &toml::Value| value.as_str().expect("text").to_owned();
    value.as_array().expect("a list").iter().map(text).collect()
}

impl Policy {
    pub fn parse(text: &str) -> Self {
        let file: toml::Table = toml::from_str(text).expect("deny.toml");
        let exceptions = file["licenses"]["exceptions"].as_array().expect("a list").iter().map(|exception| {
            let name = exception["crate"].as_str().expect("a crate").to_owned();
            (name, strings(&exception["allow"]).into_iter().collect())
        });
        assert_eq!(file["sources"]["unknown-registry"].as_str(), Some("deny"));
        assert_eq!(file["sources"]["unknown-git"].as_str(), Some("deny"));
        assert_eq!(file["sources"]["allow-git"].as_array().map(Vec::len), Some(0));
        assert_eq!(file["bans"]["multiple-versions"].as_str(), Some("deny"));
        Self {
            licenses: strings(&file["licenses"]["allow"]).into_iter().collect(),
            license_exceptions: exceptions.collect(),
            registries: strings(&file["sources"]["allow-registry"]),
            denied: Entry::list(&file["bans"]["deny"]),
            duplicates: Entry::list(&file["bans"]["skip"]),
        }
    }

    /// Packages whose licence is neither in the list nor an exception.
    pub fn license_faults(&self, packages: &[Package]) -> Vec<String> {
        let fault = |package: &Package| {
            let exceptions = self.license_exceptions.get(&package.name);
            let accepted =
                |id: &str| self.licenses.contains(id) || exceptions.is_some_and(|exceptions| exceptions.contains(id));
            match &package.license {
                Some(expression) if is_satisfied(expression, &accepted) => None,
                Some(expression) => Some(format!("{} {}: licence {expression}", package.name, package.version)),
                None => Some(format!("{} {} has no licence", package.name, package.version)),
            }
        };
        packages.iter().filter_map(fault).collect()
    }

    /// Packages from elsewhere than the registry. One without a source is part of this repository.
    pub fn source_faults(&self, packages: &[Package]) -> Vec<String> {
        let from_registry =
            |source: &str| self.registries.iter().any(|registry| source == format!("registry+{registry}"));
        let fault = |package: &Package| match &package.source {
            Some(source) if !from_registry(source) => Some(format!("{} comes from {source}", package.name)),
            Some(_) if !package.has_checksum => Some(format!("{} has no checksum", package.name)),
            // `brotli` is a stub: see stubs/brotli.
            None if !matches!(package.name.as_str(), "deskgate" | "deskgate-fuzz" | "brotli") => {
                Some(format!("{} comes from a folder", package.name))
            }
            _ => None,
        };
        packages.iter().filter_map(fault).collect()
    }

    /// Packages that `deny.toml` names, and pre-releases.
    pub fn version_faults(&self, packages: &[Package]) -> Vec<String> {
        let mut faults = Vec::new();
        for package in packages {
            let denied = self.denied.iter().filter(|entry| entry.matches(package));
            faults.extend(denied.map(|entry| format!("{} {}: {}", package.name, package.version, entry.reason)));
            if let Some(pre_release) = Version::parse(&package.version).pre_release {
                faults.push(format!("{} is a pre-release: {pre_release}", package.name));
            }
        }
        faults
    }

    /// Crates of which several versions are compiled beyond those that `deny.toml` lists, and listed ones that are no
    /// duplicates in `Cargo.lock` any more. cargo-deny goes by the features of tests too, and so finds a few more.
    pub fn duplicate_faults(&self, compiled: &[Package], locked: &[Package]) -> Vec<String> {
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let is_listed = |package: &Package| self.duplicates.iter().any(|entry| entry.matches(package));
        for package in compiled.iter().filter(|package| !is_listed(package)) {
            versions.entry(&package.name).or_default().insert(&package.version);
        }
        let several = versions.iter().filter(|(_, versions)| versions.len() > 1);
        let several = several.map(|(name, versions)| format!("{name} has several versions: {versions:?}"));
        let unused = self.duplicates.iter().filter(|entry| {
            let alone = locked.iter().filter(|package| package.name == entry.name).count() < 2;
            alone || !locked.iter().any(|package| entry.matches(package))
        });
        let unused = unused.map(|entry| format!("{} ({}) is no duplicate any more", entry.name, entry.reason));
        several.chain(unused).collect()
    }
}

/// Whether an SPDX expression can be satisfied with accepted licences. `/` is an older spelling of `OR`.
pub fn is_satisfied(expression: &str, accepted: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let satisfied = any_of(&mut rest, accepted);
    assert!(rest.is_empty(), "`{expression}` is not a licence expression");
    satisfied
}

/// `AND` binds closer than `OR`.
fn any_of(words: &mut &[&str], accepted: &dyn Fn(&str) -> bool) -> bool {
    let mut satisfied = all_of(words, accepted);
    while let ["OR", rest @ ..] = words {
        *words = rest;
        satisfied |= all_of(words, accepted);
    }
    satisfied
}

fn all_of(words: &mut &[&str], accepted: &dyn Fn(&str) -> bool) -> bool {
    let mut satisfied = one(words, accepted);
    while let ["AND", rest @ ..] = words {
        *words = rest;
        satisfied &= one(words, accepted);
    }
    satisfied
}

fn one(words: &mut &[&str], accepted: &dyn Fn(&str) -> bool) -> bool {
    match words {
        ["(", rest @ ..] => {
            *words = rest;
            let satisfied = any_of(words, accepted);
            let [")", rest @ ..] = words else { panic!("a bracket is not closed") };
            *words = rest;
            satisfied
        }
        [id, "WITH", exception, rest @ ..] => {
            *words = rest;
            accepted(&format!("{id} WITH {exception}"))
        }
        [id, rest @ ..] => {
            *words = rest;
            accepted(id)
        }
        [] => panic!("a licence is missing"),
    }
}

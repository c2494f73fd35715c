//! The bill of materials of `make sbom`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::cargo::{locked_packages, output, repository};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn bill_of_materials() -> Value {
    let mut command = Command::new("python3");
    command.arg(repository().join("deploy/sbom.py")).env("CARGO_NET_OFFLINE", "true");
    command.env("DESKGATE_COMMIT", COMMIT).env("SOURCE_DATE_EPOCH", "1700000000");
    serde_json::from_str(&output(&mut command)).expect("JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// What CycloneDX requires of a document, and of a component that a scanner is to recognise.
#[test]
fn the_bill_of_materials_has_what_scanners_need() {
    let bill = bill_of_materials();
    assert_eq!((text(&bill, "bomFormat"), text(&bill, "specVersion")), ("CycloneDX", "1.6"));
    assert_eq!(bill["version"], 1);
    let serial = text(&bill, "serialNumber").strip_prefix("urn:uuid:").expect("a UUID");
    assert_eq!(serial.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    assert_eq!(text(&bill["metadata"], "timestamp"), "2023-11-14T22:13:20Z");

    let program = &bill["metadata"]["component"];
    assert_eq!((text(program, "type"), text(program, "name")), ("application", "deskgate"));
    assert_eq!(text(program, "version"), env!("CARGO_PKG_VERSION"));
    let commit = list(program, "properties").iter().find(|property| property["name"] == "deskgate:commit");
    assert_eq!(text(commit.expect("a commit"), "value"), COMMIT);

    let components = list(&bill, "components");
    assert!(components.len() > 200, "only {} components", components.len());
    for component in components {
        let (name, version) = (text(component, "name"), text(component, "version"));
        assert_eq!(text(component, "type"), "library");
        assert_eq!(text(component, "purl"), format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")));
        let hash = &list(component, "hashes")[0];
        assert_eq!((text(hash, "alg"), text(hash, "content").len()), ("SHA-256", 64), "{name}");
        let license = text(&list(component, "licenses")[0], "expression");
        assert!(!license.is_empty() && !license.contains('/'), "{name}: {license}");
    }
    assert_eq!(bill, bill_of_materials(), "the same sources give the same document");
}

#[test]
fn the_bill_of_materials_lists_what_is_compiled_and_nothing_else() {
    let bill = bill_of_materials();
    let names: BTreeSet<&str> = list(&bill, "components").iter().map(|component| text(component, "name")).collect();
    for part_of_the_program in ["pingora-core", "rustls", "aws-lc-sys", "libsqlite3-sys", "clap", "serde_derive"] {
        assert!(names.contains(part_of_the_program), "{part_of_the_program} is missing");
    }
    // Of tests, of the demo, of a feature that nothing enables, and of another platform.
    for other in ["proptest", "tempfile", "axum", "sqlx-mysql", "windows-sys"] {
        assert!(locked_packages("Cargo.lock").iter().any(|package| package.name == other), "{other} is not locked");
        assert!(!names.contains(other), "{other} is not part of the program");
    }
}

#[test]
fn the_bill_of_materials_connects_every_component_with_the_program() {
    let bill = bill_of_materials();
    let dependencies: BTreeMap<&str, &Vec<Value>> =
        list(&bill, "dependencies").iter().map(|entry| (text(entry, "ref"), list(entry, "dependsOn"))).collect();
    let mut reached = BTreeSet::new();
    let mut open = vec![text(&bill["metadata"]["component"], "bom-ref")];
    while let Some(reference) = open.pop() {
        if reached.insert(reference) {
            let next = dependencies.get(reference).unwrap_or_else(|| panic!("{reference} has no dependencies"));
            open.extend(next.iter().map(|reference| reference.as_str().expect("a reference")));
        }
    }
    let all = list(&bill, "components").iter().map(|component| text(component, "bom-ref"));
    let apart: Vec<&str> = all.filter(|reference| !reached.contains(reference)).collect();
    assert!(apart.is_empty(), "{apart:?}");
}

//! `docs/threats.md` against the sources: every row is there once and names tests that exist.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DOCUMENT: &str = include_str!("../docs/threats.md");

/// The folder of citations that name no folder.
const DEFAULT_FOLDER: &str = "tests/gateway";

/// The mark of a promise without a test; a reason follows.
const NOT_COVERED: &str = "not covered yet";

/// The rows of the numbered tables.
const ATTACKS: u32 = 169;
const FAULTS: u32 = 65;

/// The body rows of the table below a heading, as cells.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let section = DOCUMENT.split("\n## ").find(|section| section.starts_with(heading)).expect("a section");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The cited tests of a cell, as `file::test`.
fn citations(cell: &str) -> Vec<(PathBuf, &str)> {
    let code = cell.split('`').skip(1).step_by(2);
    let cited = code.filter_map(|text| text.split_once("::"));
    cited
        .map(|(file, test)| {
            let folder = if file.contains('/') { "" } else { DEFAULT_FOLDER };
            (Path::new(folder).join(file), test)
        })
        .collect()
}

/// Whether a source file has a test of this name: a function with a test attribute, or an entry of a `suite!`.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_function = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ").and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let function = lines.iter().position(|line| is_function(line));
    let attributed = function.is_some_and(|function| {
        let attributes =
            lines[..function].iter().rev().take_while(|line| line.starts_with('#') || line.starts_with("//"));
        attributes.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    });
    let listed = source.split("suite!(").skip(1).any(|suite| {
        let entries = suite.split(");").next().unwrap_or_default().split([',', ':']);
        entries.map(str::trim).any(|entry| entry == name)
    });
    attributed || function.is_some() && listed
}

/// What is wrong with the last cell of a row that must cite tests or give a reason.
fn cell_faults(cell: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let cited = citations(cell);
    for (file, test) in &cited {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        match std::fs::read_to_string(&path) {
            Err(error) => faults.push(format!("{}: {error}", file.display())),
            Ok(source) if !has_test(&source, test) => faults.push(format!("{} has no test {test}", file.display())),
            Ok(_) => {}
        }
    }
    match cell.split_once(NOT_COVERED) {
        None if cited.is_empty() => faults.push("neither a test nor a reason".to_owned()),
        None => {}
        Some((_, rest)) => {
            let reason = rest.strip_prefix(": ").unwrap_or_default();
            if reason.split_whitespace().count() < 3 {
                faults.push(format!("`{NOT_COVERED}` without a reason"));
            }
        }
    }
    faults
}

/// The faults of a numbered table.
fn numbered_faults(heading: &str, count: u32) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeMap::new();
    for row in table(heading) {
        let Ok(number) = row[0].parse::<u32>() else {
            faults.push(format!("{heading}: `{}` is no row number", row[0]));
            continue;
        };
        *seen.entry(number).or_insert(0) += 1;
        if row.len() != 4 {
            faults.push(format!("{heading} {number}: {} cells instead of 4", row.len()));
        }
        let cell = row.last().copied().unwrap_or_default();
        faults.extend(cell_faults(cell).into_iter().map(|fault| format!("{heading} {number}: {fault}")));
    }
    let wrong = |number: &u32| seen.get(number) != Some(&1);
    faults.extend((1..=count).filter(wrong).map(|number| format!("{heading} {number} is missing or repeated")));
    faults.extend(
        seen.keys().filter(|number| !(1..=count).contains(*number)).map(|n| format!("{heading} {n} is unknown")),
    );
    faults
}

#[test]
fn every_attack_has_its_tests_or_a_reason() {
    assert_eq!(numbered_faults("Attacks", ATTACKS), Vec::<String>::new());
}

#[test]
fn every_fault_has_its_tests_or_a_reason() {
    assert_eq!(numbered_faults("Faults", FAULTS), Vec::<String>::new());
}

#[test]
fn every_lesson_names_a_row_a_test_or_a_reason() {
    let mut faults = Vec::new();
    for row in table("Lessons from others") {
        let (source, held_by) = (row[0], row.last().copied().unwrap_or_default());
        let rows: Vec<&str> = held_by.split(", ").filter(|part| !part.starts_with('`')).collect();
        let is_row = |part: &&str| {
            let within = |number: &str, count| number.parse::<u32>().is_ok_and(|number| (1..=count).contains(&number));
            part.strip_prefix("attack ").is_some_and(|number| within(number, ATTACKS))
                || part.strip_prefix("fault ").is_some_and(|number| within(number, FAULTS))
        };
        if rows.is_empty() || !rows.iter().all(is_row) {
            faults.extend(cell_faults(held_by).into_iter().map(|fault| format!("{source}: {fault}")));
        }
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn the_check_finds_missing_tests_and_reasons() {
    let source = "#[test]\nfn kept() {}\n\nfn helper() {}\n\nasync fn listed(subject: &S) {}\n\nsuite!(\n    embedded: listed,\n);\n";
    let found = ["kept", "helper", "listed", "kep", "embedded"].map(|name| has_test(source, name));
    assert_eq!(found, [true, false, true, false, false]);
    for (case, cell, faults) in [
        ("an unknown test", "`tokens.rs::no_such_test`", 1),
        ("an unknown file", "`no_such_file.rs::x`", 1),
        ("no test", "later", 1),
        ("no reason", "not covered yet", 1),
        ("an empty reason", "not covered yet: ", 1),
        ("a reason", "not covered yet: the fleet does not exist", 0),
    ] {
        assert_eq!(cell_faults(cell).len(), faults, "{case}");
    }
}

//! The shipped rule files: embedded in the binary, covered by cases, and decided without allocation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use deskgate::metrics::Metrics;
use deskgate::rules::case::Asked;
use deskgate::rules::{Lookup, RuleSet, SHIPPED, load_dir};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lua-free-rules")
}

fn shipped() -> RuleSet {
    let loaded = load_dir(&folder(), &["helpdesk"], &Metrics::new().expect("metrics"));
    loaded.unwrap_or_else(|faults| panic!("{}", faults.iter().map(|fault| format!("{fault}\n")).collect::<String>()))
}

/// All `[[kind]]` tables of the shipped files.
fn tables(kind: &str) -> Vec<toml::Table> {
    let mut found = Vec::new();
    for (_, text) in SHIPPED {
        let file: toml::Table = text.parse().expect("TOML");
        if let Some(toml::Value::Array(tables)) = file.get(kind) {
            found.extend(tables.iter().filter_map(|table| table.as_table().cloned()));
        }
    }
    found
}

#[test]
fn binary_embeds_every_rule_file() {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, files);
}

/// A rule needs a case that it allows and one that it denies.
#[test]
fn every_shipped_rule_has_an_allowed_and_a_denied_case() {
    let rules = shipped();
    let mut cases_of: BTreeMap<String, [usize; 2]> =
        tables("rule").iter().map(|rule| (rule["name"].as_str().expect("a name").to_owned(), [0, 0])).collect();
    for case in tables("case") {
        let asked: Asked = case["request"].clone().try_into().expect("a request");
        let denied = case["expect"].as_table().expect("a table").contains_key("deny");
        let candidates = rules.candidates(&asked.path);
        // A denied method counts for every rule of the path.
        for rule in candidates.iter().filter(|rule| rule.path == candidates[0].path) {
            let matched =
                matches!(rules.find(&asked.method, &asked.path), Lookup::Rule(found) if found.name == rule.name);
            if matched || denied {
                cases_of.get_mut(&*rule.name).expect("a rule")[usize::from(denied)] += 1;
            }
        }
    }
    for (rule, [allowed, denied]) in &cases_of {
        assert!(*allowed > 0, "rule `{rule}` has no allowed case");
        assert!(*denied > 0, "rule `{rule}` has no denied case");
    }
    assert!(
        cases_of.len() > 30 && rules.cases() >= 2 * cases_of.len(),
        "{} rules, {} cases",
        cases_of.len(),
        rules.cases()
    );
}

#[test]
fn decisions_allocate_no_memory() {
    let rules = shipped();
    let request = |method: &str, path: &str, role: &str| Asked {
        method: method.to_owned(),
        path: path.to_owned(),
        role: Some(role.to_owned()),
        address: [10, 1, 2, 3].into(),
        ..Asked::default()
    };
    let table = [
        request("GET", "/api/queue/next", "agent"),
        request("GET", "/api/conversations", "user"),
        request("POST", "/api/conversations/7/messages", "agent"),
        request("GET", "/h5/index.html", "user"),
        request("GET", "/nothing/at/all", "user"),
    ];
    let prepared: Vec<_> = table.iter().map(|request| (request, request.session())).collect();
    let profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().total_blocks;
    let mut decided = 0;
    for (request, session) in &prepared {
        let facts = request.facts(session.as_ref());
        if let Lookup::Rule(rule) = rules.find(facts.method, facts.path) {
            decided += usize::from(rule.judge(&facts, &mut ()).is_ok());
        }
    }
    let after = dhat::HeapStats::get().total_blocks;
    drop(profiler);
    assert_eq!(decided, 4);
    assert_eq!(after - before, 0, "allocations in five decisions");
}

//! The rule files that the repository ships, held to what stands beside them; and that deciding asks for no memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use deskgate::metrics::Metrics;
use deskgate::rules::case::SampleRequest;
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

/// All tables of one kind in the shipped files.
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
fn the_program_carries_the_files_of_the_folder() {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, files);
}

/// A rule without a case that it lets through, or without one that it refuses, has never been tried.
#[test]
fn every_shipped_rule_has_a_case_of_either_kind() {
    let rules = shipped();
    let mut tried: BTreeMap<String, [usize; 2]> =
        tables("rule").iter().map(|rule| (rule["name"].as_str().expect("a name").to_owned(), [0, 0])).collect();
    for case in tables("case") {
        let asked: SampleRequest = case["request"].clone().try_into().expect("a request");
        let denied = case["expect"].as_table().expect("a table").contains_key("deny");
        let fits = rules.candidates(&asked.path);
        // A refusal for the method counts for the rules that have the path.
        for rule in fits.first().into_iter().chain(fits.iter().skip(1).filter(|rule| rule.path == fits[0].path)) {
            let takes = matches!(rules.find(&asked.method, &asked.path), Lookup::Rule(one) if one.name == rule.name);
            if takes || denied {
                tried.get_mut(&*rule.name).expect("a rule")[usize::from(denied)] += 1;
            }
        }
    }
    for (rule, [allowed, denied]) in &tried {
        assert!(*allowed > 0, "rule `{rule}` has no case that it lets through");
        assert!(*denied > 0, "rule `{rule}` has no case that it refuses");
    }
    assert!(tried.len() > 30 && rules.cases() >= 2 * tried.len(), "{} rules, {} cases", tried.len(), rules.cases());
}

#[test]
fn deciding_asks_for_no_memory() {
    let rules = shipped();
    let asked = |method: &str, path: &str, role: &str| SampleRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        role: Some(role.to_owned()),
        address: [10, 1, 2, 3].into(),
        ..SampleRequest::default()
    };
    let table = [
        asked("GET", "/api/queue/next", "agent"),
        asked("GET", "/api/conversations", "user"),
        asked("POST", "/api/conversations/7/messages", "agent"),
        asked("GET", "/h5/index.html", "user"),
        asked("GET", "/nothing/at/all", "user"),
    ];
    let prepared: Vec<_> = table.iter().map(|asked| (asked, asked.session())).collect();
    let profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().total_blocks;
    let mut decided = 0;
    for (asked, session) in &prepared {
        let facts = asked.facts(session.as_ref());
        if let Lookup::Rule(rule) = rules.find(facts.method, facts.path) {
            decided += usize::from(rule.judge(&facts, &mut ()).is_ok());
        }
    }
    let after = dhat::HeapStats::get().total_blocks;
    drop(profiler);
    assert_eq!(decided, 4);
    assert_eq!(after - before, 0, "blocks of memory for five decisions");
}

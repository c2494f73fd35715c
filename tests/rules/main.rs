//! The shipped rule files: their cases hold, every rule has cases, and evaluating a rule allocates nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use deskgate::endpoints::{OwnAccess, TABLE};
use deskgate::explain::check_cases;
use deskgate::metrics::Metrics;
use deskgate::rules::case::SampleRequest;
use deskgate::rules::{RuleFault, RuleMatch, RuleSet, SHIPPED, load_dir};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lua-free-rules")
}

fn shipped() -> RuleSet {
    let fail = |faults: Vec<RuleFault>| -> RuleSet {
        panic!("{}", faults.iter().map(|fault| format!("{fault}\n")).collect::<String>())
    };
    let rules = load_dir(&folder(), &["helpdesk".into()], &Metrics::new().expect("metrics")).unwrap_or_else(fail);
    match check_cases(&rules) {
        Ok(()) => rules,
        Err(faults) => fail(faults),
    }
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
fn the_binary_embeds_every_shipped_rule_file() {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, files);
}

#[test]
fn every_shipped_rule_has_a_case_that_allows_and_one_that_denies() {
    let rules = shipped();
    let mut tried: BTreeMap<String, [usize; 2]> =
        tables("rule").iter().map(|rule| (rule["name"].as_str().expect("a name").to_owned(), [0, 0])).collect();
    for case in tables("case") {
        let sample: SampleRequest = case["request"].clone().try_into().expect("a request");
        let denied = case["expect"].as_table().expect("a table").contains_key("deny");
        let matching = rules.candidates(&sample.path);
        // A 405 counts as a denial for every rule of the path.
        let same_path = matching.iter().filter(|rule| rule.path == matching[0].path);
        for rule in same_path {
            let found = rules.find(&sample.method, &sample.path);
            let decides = matches!(found, RuleMatch::Rule(one) if one.name == rule.name);
            if decides || denied {
                tried.get_mut(&*rule.name).expect("a rule")[usize::from(denied)] += 1;
            }
        }
    }
    for (rule, [allowed, denied]) in &tried {
        assert!(*allowed > 0, "rule `{rule}` has no case that it allows");
        assert!(*denied > 0, "rule `{rule}` has no case that it denies");
    }
    assert!(tried.len() > 30 && rules.cases() >= 2 * tried.len(), "{} rules, {} cases", tried.len(), rules.cases());
}

#[test]
fn every_anonymous_sign_in_endpoint_has_a_rate() {
    let rules = shipped();
    let is_asset = |path: &str| path.ends_with(".css") || path.ends_with(".js");
    let is_sign_in = |path: &str| path.starts_with("/api/auth/") || path.starts_with("/api/agents/");
    let anonymous = TABLE.iter().filter(|row| row.access == OwnAccess::Anyone && is_sign_in(row.path));
    let unlimited: Vec<&str> = anonymous
        .filter(|row| !is_asset(row.path) && rules.rates_of(row.endpoint).is_empty())
        .map(|row| row.path)
        .collect();
    assert!(unlimited.is_empty(), "without a rate: {unlimited:?}");
}

#[test]
fn evaluating_a_rule_allocates_nothing() {
    let rules = shipped();
    let sample = |method: &str, path: &str, role: &str| SampleRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        role: Some(role.to_owned()),
        address: [10, 1, 2, 3].into(),
        ..SampleRequest::default()
    };
    let table = [
        sample("GET", "/api/queue/next", "agent"),
        sample("GET", "/api/conversations", "user"),
        sample("POST", "/api/conversations/7/messages", "agent"),
        sample("GET", "/h5/index.html", "user"),
        sample("GET", "/nothing/at/all", "user"),
    ];
    let prepared: Vec<_> = table.iter().map(|sample| (sample, sample.session())).collect();
    let profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().total_blocks;
    let mut decided = 0;
    for (sample, session) in &prepared {
        let input = sample.input(session.as_ref());
        if let RuleMatch::Rule(rule) = rules.find(input.method, input.path) {
            decided += usize::from(rule.evaluate(&input, &mut ()).is_ok());
        }
    }
    let after = dhat::HeapStats::get().total_blocks;
    drop(profiler);
    assert_eq!(decided, 4);
    assert_eq!(after - before, 0, "allocations of five decisions");
}

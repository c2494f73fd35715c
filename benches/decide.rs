//! What a decision costs: with 10 rules and with 5,000, by roles, by the matrix and by a condition.
//! `cargo bench --bench decide`; that deciding asks for no memory is a test (`tests/rules`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use deskgate::metrics::Metrics;
use deskgate::rules::case::Asked;
use deskgate::rules::{Lookup, RuleSet, load_texts};

const MATRIX: &str = "[matrix.agent]\nconversations = { read = \"all\" }\n";

const KINDS: [(&str, &str); 3] = [
    ("roles", "roles = [\"supervisor\", \"agent\"]"),
    ("matrix", "access = \"conversations:read\"\nnetworks = [\"10.0.0.0/8\"]"),
    ("condition", "signed_in = true\nwhen = 'identity.department == \"IT\" && request.method != \"DELETE\"'"),
];

/// `count` rules of one kind, side by side and nested.
fn rules(count: usize, access: &str) -> RuleSet {
    let mut text = MATRIX.to_owned();
    for number in 0..count {
        let _ = write!(
            text,
            "[[rule]]\nname = \"{number}\"\npath = \"/api/part{}/{{id}}/thing{number}\"\nupstream = \"desk\"\n{access}\n",
            number % 100
        );
    }
    let metrics = Metrics::new().expect("metrics");
    load_texts(&[("bench.toml".to_owned(), text)], &["desk"], &metrics).expect("sound rules")
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for (kind, access) in KINDS {
        for count in [10, 5000] {
            let rules = rules(count, access);
            let last = count - 1;
            let asked = Asked {
                path: format!("/api/part{}/42/thing{last}", last % 100),
                role: Some("agent".to_owned()),
                department: "IT".to_owned(),
                address: [10, 1, 2, 3].into(),
                ..Asked::default()
            };
            let session = asked.session();
            let facts = asked.facts(session.as_ref());
            group.bench_function(BenchmarkId::new(kind, count), |bencher| {
                bencher.iter(|| {
                    let Lookup::Rule(rule) = rules.find(black_box("GET"), black_box(facts.path)) else {
                        panic!("no rule");
                    };
                    rule.judge(&facts, &mut ()).expect("admitted")
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);

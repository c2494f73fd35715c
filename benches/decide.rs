//! The cost of finding and evaluating a rule (10 and 5,000 rules; roles, matrix, condition) and of charging a rate (time
//! per charge, memory per key). Run with `cargo bench --bench decide`. `tests/rules` checks that evaluation does not
//! allocate.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use deskgate::domain::rate::{Counters, RateKey, Window};
use deskgate::metrics::Metrics;
use deskgate::rules::case::SampleRequest;
use deskgate::rules::{RuleMatch, RuleSet, load_texts};
use deskgate::store::rate_counters::InMemoryRateCounters;

const MATRIX: &str = "[matrix.agent]\nconversations = { read = \"all\" }\n";

const KINDS: [(&str, &str); 3] = [
    ("roles", "roles = [\"supervisor\", \"agent\"]"),
    ("matrix", "access = \"conversations:read\"\nnetworks = [\"10.0.0.0/8\"]"),
    ("condition", "signed_in = true\nwhen = 'identity.department == \"IT\" && request.method != \"DELETE\"'"),
];

/// `count` rules of one kind, in 100 subtrees.
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
    load_texts(&[("bench.toml".to_owned(), text)], &["desk".into()], &metrics).expect("valid rules")
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for (kind, access) in KINDS {
        for count in [10, 5000] {
            let rules = rules(count, access);
            let last = count - 1;
            let sample = SampleRequest {
                path: format!("/api/part{}/42/thing{last}", last % 100),
                role: Some("agent".to_owned()),
                department: "IT".to_owned(),
                address: [10, 1, 2, 3].into(),
                ..SampleRequest::default()
            };
            let session = sample.session();
            let input = sample.input(session.as_ref());
            group.bench_function(BenchmarkId::new(kind, count), |bencher| {
                bencher.iter(|| {
                    let RuleMatch::Rule(rule) = rules.find(black_box("GET"), black_box(input.path)) else {
                        panic!("no rule");
                    };
                    rule.evaluate(&input, &mut ()).expect("admitted")
                });
            });
        }
    }
    group.finish();
}

const MINUTE: Window = Window { limit: 120, per: Duration::from_secs(60) };

fn charge(criterion: &mut Criterion) {
    const KEYS: u64 = 100_000;
    let key = |subject: u64| RateKey { rate: 1, subject: subject.into() };
    let before = resident_bytes();
    let counters = InMemoryRateCounters::new(100_000);
    for subject in 0..KEYS {
        counters.charge(key(subject), MINUTE, Duration::ZERO);
    }
    println!("{} bytes for each of {KEYS} keys", (resident_bytes() - before) / KEYS);
    let mut group = criterion.benchmark_group("charge");
    let unlimited = Window { limit: u32::MAX, ..MINUTE };
    group.bench_function("admitted", |bencher| {
        bencher.iter(|| counters.charge(black_box(key(7)), unlimited, Duration::ZERO));
    });
    group.bench_function("refused", |bencher| {
        bencher.iter(|| counters.charge(black_box(key(7)), MINUTE, Duration::ZERO));
    });
    let mut turn = 0_u64;
    group.bench_function("any of 100,000 keys", |bencher| {
        bencher.iter(|| {
            // A pseudo-random key, which is not in the CPU cache.
            turn = turn.wrapping_add(0x9e37_79b9_7f4a_7c15);
            counters.charge(key(turn % KEYS), unlimited, Duration::ZERO)
        });
    });
    group.bench_function("a new key", |bencher| {
        bencher.iter(|| {
            turn = turn.wrapping_add(1);
            counters.charge(RateKey { rate: 2, subject: turn.into() }, MINUTE, Duration::ZERO)
        });
    });
    group.finish();
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).expect("a second number").parse().expect("a number");
    pages * 4096
}

criterion_group!(benches, decide, charge);
criterion_main!(benches);

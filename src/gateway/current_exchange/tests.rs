use super::*;
use crate::gateway::context::unknown_arrival;
use crate::metrics::Metrics;
use crate::rules::{RuleMatch, load_texts};

fn watched() -> WatchedExchange {
    let rule = "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"desk\"\npublic = true\n";
    let texts = [("0.toml".to_owned(), rule.to_owned())];
    let rules = load_texts(&texts, &["desk".into()], &Metrics::new().expect("metrics")).expect("valid rules");
    let RuleMatch::Rule(rule) = rules.find("GET", "/a") else { panic!("the rule") };
    WatchedExchange {
        arrival: unknown_arrival(),
        caller: Caller::Anonymous,
        rule: rule.clone(),
        method: Method::GET,
        announced_method: None,
        upstream: None,
    }
}

#[test]
fn idle_connection_does_not_keep_a_long_path() {
    let current = CurrentExchange::new();
    for length in [16 * 1024, 10, 8 * 1024] {
        current.begin(Instant::now(), &vec![b'x'; length], &vec![b'h'; length], watched());
        current.end();
        let details = current.details();
        let kept = [details.path.capacity(), details.host.capacity()];
        assert!(kept.iter().all(|kept| *kept <= KEPT_TEXT), "{kept:?} bytes after a path and a host of {length}");
    }
}

#[test]
fn query_is_not_copied() {
    let current = CurrentExchange::new();
    current.begin(Instant::now(), b"/a/b?token=secret?c", b"a.example", watched());
    assert_eq!(current.details().path, b"/a/b");
}

#[test]
fn exchange_begins_without_values_of_the_previous_one() {
    let current = CurrentExchange::new();
    current.begin(Instant::now(), b"/a", b"a.example", watched());
    current.status.store(200, Ordering::Relaxed);
    current.overhead.store(nanos(Duration::from_millis(2)), Ordering::Relaxed);
    assert_eq!((current.status(), current.overhead()), (200, Some(Duration::from_millis(2))));
    current.end();
    let started = Instant::now();
    current.begin(started, b"/b", b"a.example", watched());
    assert_eq!((current.status(), current.overhead(), current.started()), (0, None, started));
}

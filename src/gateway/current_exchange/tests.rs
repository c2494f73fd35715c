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
        started: Instant::now(),
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
    let mut current = CurrentExchange::default();
    for length in [16 * 1024, 10, 8 * 1024] {
        current.begin(&vec![b'x'; length], &vec![b'h'; length], watched());
        current.end();
        let kept = [current.path.capacity(), current.host.capacity()];
        assert!(kept.iter().all(|kept| *kept <= KEPT_TEXT), "{kept:?} bytes after a path and a host of {length}");
    }
}

#[test]
fn query_is_not_copied() {
    let mut current = CurrentExchange::default();
    current.begin(b"/a/b?token=secret?c", b"a.example", watched());
    assert_eq!(current.path, b"/a/b");
}

#[tokio::test]
async fn exchange_begins_without_values_of_the_previous_one() {
    let values = || read(|current| (current.watched().map(|(number, _)| number), current.status, current.overhead));
    scope(async {
        begin(b"/a", b"a.example", watched);
        note_response(StatusCode::OK, Some(Duration::from_millis(2)));
        assert_eq!(values(), Some((Some(1), 200, Some(Duration::from_millis(2)))));
        end();
        assert_eq!(read(|current| current.watched().is_none()), Some(true));
        begin(b"/b", b"a.example", watched);
        assert_eq!(values(), Some((Some(2), 0, None)));
    })
    .await;
    assert_eq!(values(), None, "outside of the scope");
}

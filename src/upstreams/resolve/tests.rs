use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::config::{HumanDuration, UpstreamConfig};
use crate::domain::clock::Clock;
use crate::metrics::Metrics;

fn upstreams(addresses: &[&str]) -> Arc<Upstreams> {
    let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
    let config = UpstreamConfig { addresses, resolve: HumanDuration::seconds(30), ..UpstreamConfig::default() };
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    Arc::new(
        Upstreams::new(&BTreeMap::from([("desk".to_owned(), config)]), metrics, Clock::system()).expect("upstreams"),
    )
}

fn names(upstreams: &Upstreams) -> Vec<String> {
    let upstream = upstreams.at(0).expect("an upstream");
    upstream.address_names().into_iter().map(str::to_owned).collect()
}

/// Answers with what a test says at the moment; `None` is a failure.
fn scripted(answer: &Arc<Mutex<Option<Vec<&'static str>>>>) -> Lookup {
    let answer = answer.clone();
    Arc::new(move |_, port| {
        let found = answer.lock().expect("unpoisoned").clone();
        let found =
            found.map(|hosts| hosts.iter().map(|host| SocketAddr::new(host.parse().expect("an IP"), port)).collect());
        async move { found.ok_or_else(|| io::Error::other("no answer")) }.boxed()
    })
}

#[tokio::test]
async fn all_addresses_of_a_name_are_used_and_the_last_answer_stays() {
    let upstreams = upstreams(&["127.0.0.9:80", "desk.test:80"]);
    assert_eq!(names(&upstreams), ["127.0.0.9:80"]);
    let answer = Arc::new(Mutex::new(None));
    let lookup = scripted(&answer);
    let set = async |hosts: Option<Vec<&'static str>>| {
        *answer.lock().expect("unpoisoned") = hosts;
        resolve(&upstreams, 0, &lookup).await;
        names(&upstreams)
    };
    assert_eq!(set(None).await, ["127.0.0.9:80"], "no answer yet");
    let both = ["127.0.0.9:80", "127.0.0.1:80", "127.0.0.2:80"];
    assert_eq!(set(Some(vec!["127.0.0.2", "127.0.0.1"])).await, both);
    assert_eq!(set(None).await, both, "the last answer stays");
    assert_eq!(set(Some(vec![])).await, both, "an empty answer is none");
    assert_eq!(set(Some(vec!["127.0.0.3"])).await, ["127.0.0.9:80", "127.0.0.3:80"]);
    assert_eq!(set(Some(vec!["127.0.0.9"])).await, ["127.0.0.9:80"], "each address once");
}

#[tokio::test]
async fn an_address_that_stays_keeps_what_is_known_about_it() {
    let upstreams = upstreams(&["desk.test:80"]);
    let answer = Arc::new(Mutex::new(Some(vec!["127.0.0.1"])));
    let lookup = scripted(&answer);
    resolve(&upstreams, 0, &lookup).await;
    let upstream = upstreams.at(0).expect("an upstream");
    upstream.succeeded(&upstream.addresses[0], Duration::from_millis(7));
    *answer.lock().expect("unpoisoned") = Some(vec!["127.0.0.1", "127.0.0.2"]);
    resolve(&upstreams, 0, &lookup).await;
    let latencies: Vec<_> =
        upstreams.at(0).expect("an upstream").addresses.iter().map(|address| address.state.latency()).collect();
    assert_eq!(latencies, [Some(Duration::from_millis(7)), None]);
}

#[tokio::test(start_paused = true)]
async fn names_are_looked_up_again_and_sooner_while_they_have_no_address() {
    let upstreams = upstreams(&["desk.test:80"]);
    let answer = Arc::new(Mutex::new(None));
    let task = tokio::spawn(run_with(upstreams.clone(), scripted(&answer)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(names(&upstreams).is_empty());
    *answer.lock().expect("unpoisoned") = Some(vec!["127.0.0.1"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(names(&upstreams), ["127.0.0.1:80"]);
    *answer.lock().expect("unpoisoned") = Some(vec!["127.0.0.2"]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(names(&upstreams), ["127.0.0.1:80"], "within upstreams.desk.resolve");
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(names(&upstreams), ["127.0.0.2:80"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_name_without_an_address_are_logged_once_per_resolve() {
    let upstreams = upstreams(&["desk.test:80"]);
    let answer = Arc::new(Mutex::new(None));
    let lookup = scripted(&answer);
    let key = ("desk".into(), "desk.test".to_owned(), 80);
    let mut logged = Vec::new();
    for _ in 0..61 {
        resolve(&upstreams, 0, &lookup).await;
        let failure = upstreams.failed_names().get(&key).cloned().expect("a failure");
        assert_eq!(failure.why, "no answer");
        logged.push(failure.logged);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    logged.dedup();
    assert_eq!(logged.len(), 3, "at 0, 30 and 60 seconds");
    *answer.lock().expect("unpoisoned") = Some(vec!["127.0.0.1"]);
    resolve(&upstreams, 0, &lookup).await;
    assert!(upstreams.failed_names().is_empty(), "the name resolves");
}

#[test]
fn a_check_names_what_does_not_resolve() {
    let config = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        UpstreamConfig { addresses, ..UpstreamConfig::default() }
    };
    let (found, missing) =
        (config(&["localhost:80", "127.0.0.1:80", "unix:/run/desk.sock"]), config(&["mail.invalid:80"]));
    let warnings = unresolvable(&BTreeMap::from([("desk".to_owned(), found), ("mail".to_owned(), missing)]));
    let expected = "upstreams.mail: mail.invalid does not resolve: ";
    assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{warnings:?}");
}

#[tokio::test]
async fn the_systems_resolver_knows_localhost_and_not_a_name_that_cannot_exist() {
    let lookup = system_lookup();
    let found = lookup("localhost".to_owned(), 80).await.expect("an answer");
    assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
    // Has a label that is too long, so that no server is asked.
    lookup(format!("{}.test", "a".repeat(64)), 80).await.expect_err("no such name");
}

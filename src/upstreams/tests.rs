use super::*;
use crate::config::PathCase;

fn config(names: &[&str]) -> BTreeMap<String, UpstreamConfig> {
    let addresses = vec!["127.0.0.1:1".parse().expect("an address")];
    let settings = UpstreamConfig { addresses, path_case: PathCase::Sensitive, ..UpstreamConfig::default() };
    names.iter().map(|name| ((*name).to_owned(), settings.clone())).collect()
}

fn upstreams(names: &[&str]) -> Upstreams {
    Upstreams::new(&config(names), Arc::new(Metrics::new().expect("metrics")), Clock::system()).expect("upstreams")
}

fn indexes(upstreams: &Upstreams, names: &[&str]) -> Vec<(String, usize)> {
    upstreams.named(&config(names)).iter().map(|upstream| (upstream.name.to_owned(), upstream.index)).collect()
}

#[test]
fn a_known_upstream_keeps_its_index_and_a_new_one_is_appended() {
    let upstreams = upstreams(&["desk", "wiki"]);
    let expected = [("assets".to_owned(), 2), ("desk".to_owned(), 0), ("files".to_owned(), 3)];
    assert_eq!(indexes(&upstreams, &["assets", "desk", "files"]), expected, "before they are applied");
    upstreams.apply(&config(&["assets", "desk", "files"]), UpstreamTlsFiles::new());
    assert_eq!(indexes(&upstreams, &["assets", "desk", "files"]), expected);
    let names: Vec<String> = upstreams.all().iter().map(|upstream| upstream.name.to_string()).collect();
    assert_eq!(names, ["desk", "wiki", "assets", "files"]);
}

#[test]
fn a_removed_upstream_still_serves_requests_that_refer_to_it() {
    let upstreams = upstreams(&["desk", "wiki"]);
    upstreams.apply(&config(&["desk"]), UpstreamTlsFiles::new());
    let removed = upstreams.at(1).expect("the upstream");
    assert!(removed.choose(Affinity::default(), &mut TriedAddresses::default(), std::time::Instant::now()).is_some());
    let shown: Vec<String> = upstreams.rows().into_iter().map(|row| row.upstream).collect();
    assert_eq!(shown, ["desk"]);
    upstreams.apply(&config(&["desk", "wiki"]), UpstreamTlsFiles::new());
    assert_eq!(upstreams.rows().len(), 2, "one that comes back is the same");
    assert_eq!(upstreams.count(), 2);
}

#[test]
fn a_request_is_in_flight_at_its_address_until_it_ends() {
    let upstreams = upstreams(&["desk"]);
    let upstream = upstreams.at(0).expect("the upstream");
    let chosen = upstream.choose(Affinity::default(), &mut TriedAddresses::default(), std::time::Instant::now());
    assert_eq!(upstreams.rows()[0].in_flight, 1);
    upstreams.apply(&config(&["desk"]), UpstreamTlsFiles::new());
    assert_eq!(upstreams.rows()[0].in_flight, 1, "after a change, too");
    drop(chosen);
    assert_eq!(upstreams.rows()[0].in_flight, 0);
}

#[test]
fn the_gauge_of_healthy_addresses_has_only_those_of_the_configuration() {
    let upstreams = upstreams(&["desk", "wiki"]);
    let series = |upstreams: &Upstreams| {
        upstreams.measure();
        let text = String::from_utf8(upstreams.metrics().render()).expect("text");
        text.lines().filter(|line| line.starts_with("deskgate_upstream_healthy{")).count()
    };
    assert_eq!(series(&upstreams), 2);
    upstreams.apply(&config(&["wiki"]), UpstreamTlsFiles::new());
    assert_eq!(series(&upstreams), 1);
}

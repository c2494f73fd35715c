use super::*;

fn limits(most: usize) -> Arc<ConnectionLimits> {
    Arc::new(ConnectionLimits::new(most, vec!["10.0.0.0/8".parse().expect("a network")], 1000))
}

fn open(limits: &Arc<ConnectionLimits>, address: &str) -> Option<CountedClient> {
    limits.open(address.parse().expect("an address"))
}

/// Opens connections until one is refused, and returns those that are open.
fn open_all(limits: &Arc<ConnectionLimits>, address: impl Fn(usize) -> String) -> Vec<CountedClient> {
    (0..1000).map_while(|number| open(limits, &address(number))).collect()
}

#[test]
fn an_address_has_at_most_its_connections() {
    let limits = limits(3);
    let mut held = open_all(&limits, |_| "192.0.2.1".to_owned());
    assert_eq!(held.len(), 3);
    assert!(open(&limits, "::ffff:192.0.2.1").is_none(), "the same address in IPv6 notation");
    assert!(open(&limits, "192.0.2.2").is_some(), "another address");
    held.pop();
    assert!(open(&limits, "192.0.2.1").is_some(), "a closed connection makes room");
}

#[test]
fn ipv6_is_counted_by_64_and_by_48() {
    let limits = limits(3);
    let one_network = open_all(&limits, |number| format!("2001:db8:1:1::{number:x}"));
    assert_eq!(one_network.len(), 3, "addresses of one /64 count together");
    let one_site = open_all(&limits, |number| format!("2001:db8:1:{:x}::1", number + 2));
    assert_eq!(one_site.len() + one_network.len(), 3 * NETWORKS_PER_SITE, "networks of one /48 count together");
    assert!(open(&limits, "2001:db8:2:1::1").is_some(), "another /48");
    drop(one_site);
    assert!(open(&limits, "2001:db8:1:9::1").is_some());
}

#[test]
fn a_connection_refused_by_its_48_is_not_counted_in_its_64() {
    let limits = limits(1);
    let held = open_all(&limits, |number| format!("2001:db8:1:{number:x}::1"));
    assert_eq!(held.len(), NETWORKS_PER_SITE);
    assert!(open(&limits, "2001:db8:1:ff::1").is_none());
    drop(held);
    assert!(open(&limits, "2001:db8:1:ff::1").is_some());
}

#[test]
fn trusted_proxies_are_exempt_and_zero_is_no_limit() {
    let (one, unlimited) = (limits(1), limits(0));
    assert_eq!(open_all(&one, |_| "10.1.2.3".to_owned()).len(), 1000);
    assert_eq!(open_all(&unlimited, |_| "192.0.2.1".to_owned()).len(), 1000);
}

#[test]
fn closed_connections_leave_nothing_behind() {
    let limits = limits(5);
    drop(open_all(&limits, |number| format!("2001:db8:{number:x}::1")));
    assert!(limits.shards.iter().all(|shard| shard.lock().expect("the lock").is_empty()));
}

#[test]
fn the_connections_of_an_address_share_its_streams() {
    let limits = limits(3);
    let (first, second) = (open(&limits, "192.0.2.1").expect("room"), open(&limits, "192.0.2.1").expect("room"));
    let other = open(&limits, "192.0.2.2").expect("room");
    let mut streams = vec![first.begin_stream(), first.begin_stream(), second.begin_stream()];
    assert!(streams.iter().all(Result::is_ok));
    assert!([&first, &second].iter().all(|client| client.begin_stream().err() == Some(StreamRefusal::Client)));
    assert!(other.begin_stream().is_ok(), "another address");
    streams.pop();
    assert!(first.begin_stream().is_ok(), "a finished request makes room");
    drop(streams);
    assert!(
        first.networks.iter().all(|network| network.streams.load(Ordering::Relaxed) == 0),
        "refused ones are not counted"
    );
}

#[test]
fn streams_of_ipv6_are_counted_by_64_and_by_48() {
    let limits = limits(3);
    let clients: Vec<_> =
        (0..5).map(|number| open(&limits, &format!("2001:db8:1:{number:x}::1")).expect("room")).collect();
    let streams: Vec<_> = clients.iter().flat_map(|client| std::iter::from_fn(|| client.begin_stream().ok())).collect();
    assert_eq!(streams.len(), 3 * NETWORKS_PER_SITE);
}

#[test]
fn streams_of_trusted_proxies_are_limited_by_the_descriptors_only() {
    let limits = limits(1);
    let proxy = open(&limits, "10.1.2.3").expect("room");
    let mut streams: Vec<_> = (0..1000).map_while(|_| proxy.begin_stream().ok()).collect();
    assert_eq!(streams.len(), 1000);
    let client = open(&limits, "192.0.2.1").expect("room");
    assert_eq!(client.begin_stream().err(), Some(StreamRefusal::Process), "all clients share the descriptors");
    streams.pop();
    assert!(client.begin_stream().is_ok(), "a finished request makes room, and a refused one is not counted");
}

use std::collections::BTreeMap;

use super::*;
use crate::config::HumanDuration;
use crate::metrics::Metrics;
use crate::upstreams::address::{AddressState, ChosenAddress};
use crate::upstreams::peer::{ResolvedAddress, peer};

fn config(balance: Balance) -> UpstreamConfig {
    UpstreamConfig { balance, slow_start: HumanDuration::seconds(10), ..UpstreamConfig::default() }
}

fn addresses(weights: &[u32]) -> Vec<Arc<Address>> {
    let address = |(index, weight): (usize, &u32)| {
        let port = u16::try_from(index + 1).expect("a port");
        let resolved = ResolvedAddress::Socket(([127, 0, 0, 1], port).into());
        let peer = peer(&resolved, &UpstreamConfig::default()).expect("a peer");
        let state = Arc::new(AddressState::new(resolved.to_string()));
        let metrics = Metrics::new().expect("metrics").of_address("desk", &state.name, &[]);
        Arc::new(Address { peer, pool_key: 0, weight: *weight, state, metrics })
    };
    weights.iter().enumerate().map(address).collect()
}

struct Fixture {
    addresses: Vec<Arc<Address>>,
    balancer: Balancer,
    turns: Turns,
    now: Moment,
}

impl Fixture {
    fn new(balance: Balance, weights: &[u32]) -> Self {
        let addresses = addresses(weights);
        let balancer = Balancer::new(&config(balance), &addresses);
        Self { addresses, balancer, turns: Turns::default(), now: Moment::now() }
    }

    fn choose(&self, affinity: Affinity, tried: &TriedAddresses) -> usize {
        self.balancer.choose(&self.addresses, &self.turns, affinity, tried, self.now).expect("an address")
    }

    fn next(&self) -> usize {
        self.choose(Affinity::default(), &TriedAddresses::default())
    }

    /// How many of a number of requests each address gets.
    fn counts(&self, requests: usize) -> Vec<usize> {
        let mut counts = vec![0; self.addresses.len()];
        (0..requests).for_each(|_| counts[self.next()] += 1);
        counts
    }

    fn set_unhealthy(&self, index: usize) {
        self.addresses[index].state.set_available_from(Moment::NEVER);
    }
}

#[test]
fn requests_are_distributed_by_weight_and_evenly_spread() {
    let fixture = Fixture::new(Balance::RoundRobin, &[1, 2, 1]);
    let round: Vec<usize> = (0..4).map(|_| fixture.next()).collect();
    assert_eq!(round, [1, 0, 2, 1]);
    assert_eq!(fixture.counts(400), [100, 200, 100]);
}

#[test]
fn the_share_of_an_unavailable_address_is_spread_over_all_others() {
    let fixture = Fixture::new(Balance::RoundRobin, &[1, 1, 1, 1]);
    fixture.set_unhealthy(1);
    let counts = fixture.counts(1200);
    assert_eq!(counts[1], 0);
    assert!([0, 2, 3].iter().all(|index| (395..=405).contains(&counts[*index])), "{counts:?}");
}

#[test]
fn all_addresses_are_used_if_none_is_available() {
    for balance in [Balance::RoundRobin, Balance::LeastConnections, Balance::Session] {
        let fixture = Fixture::new(balance, &[1, 1]);
        fixture.set_unhealthy(0);
        fixture.set_unhealthy(1);
        assert_eq!(fixture.counts(10), [5, 5], "{balance:?}");
    }
}

#[test]
fn a_retry_takes_an_address_that_was_not_tried_while_one_is_available() {
    for balance in [Balance::RoundRobin, Balance::LeastConnections, Balance::Session] {
        let fixture = Fixture::new(balance, &[1, 1, 1]);
        for request in 0..50_u8 {
            let affinity = Affinity::of(&[request]);
            let mut tried = TriedAddresses::default();
            for _ in 0..3 {
                let index = fixture.choose(affinity, &tried);
                assert!(!tried.contains(index), "{balance:?}");
                tried.add(index);
            }
            assert!(!fixture.balancer.has_other(&fixture.addresses, &tried, fixture.now));
        }
    }
}

#[test]
fn a_retry_goes_back_to_an_available_address_rather_than_to_an_unavailable_one() {
    let fixture = Fixture::new(Balance::RoundRobin, &[1, 1]);
    fixture.set_unhealthy(1);
    let mut tried = TriedAddresses::default();
    tried.add(0);
    assert_eq!(fixture.choose(Affinity::default(), &tried), 0);
}

#[test]
fn an_address_that_returns_gets_its_share_gradually() {
    let mut fixture = Fixture::new(Balance::RoundRobin, &[1, 1]);
    let returned = fixture.now;
    fixture.addresses[0].state.set_available_from(returned);
    let mut shares = Vec::new();
    for seconds in [0, 5, 9, 10] {
        fixture.now = returned.plus(Duration::from_secs(seconds));
        shares.push(fixture.counts(1000)[0]);
    }
    assert_eq!(shares, [50, 250, 450, 500]);
}

#[test]
fn the_least_loaded_address_is_chosen() {
    let fixture = Fixture::new(Balance::LeastConnections, &[1, 1, 2]);
    let _busy: Vec<ChosenAddress> =
        [0, 1, 1, 2].iter().map(|index| ChosenAddress::new(fixture.addresses[*index].clone())).collect();
    // One request for a weight of one, two for one, one for two.
    assert_eq!(fixture.counts(10), [0, 0, 10]);
}

#[test]
fn equally_loaded_addresses_take_turns() {
    let fixture = Fixture::new(Balance::LeastConnections, &[1, 1, 1]);
    assert_eq!(fixture.counts(30), [10, 10, 10]);
}

#[test]
fn a_session_keeps_its_address_and_only_those_of_a_lost_address_move() {
    let fixture = Fixture::new(Balance::Session, &[1, 1, 2]);
    let sessions: Vec<Affinity> = (0..4000_u32).map(|session| Affinity::of(&session.to_le_bytes())).collect();
    let place = |affinity: &Affinity| fixture.choose(*affinity, &TriedAddresses::default());
    let before: Vec<usize> = sessions.iter().map(place).collect();
    assert_eq!(before, sessions.iter().map(place).collect::<Vec<_>>());
    let mut counts = BTreeMap::new();
    before.iter().for_each(|index| *counts.entry(*index).or_insert(0) += 1);
    assert!((850..1150).contains(&counts[&0]) && (1850..2150).contains(&counts[&2]), "{counts:?}");
    fixture.set_unhealthy(0);
    for (session, index) in sessions.iter().zip(before) {
        let after = place(session);
        assert!(if index == 0 { after != 0 } else { after == index });
    }
}

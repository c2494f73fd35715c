use super::*;

const NOW: Duration = Duration::from_secs(1_000);

fn key(name: &str) -> Digest {
    Digest::of(&[name])
}

fn network(last: u8) -> Network {
    Network::of([192, 0, 2, last].into())
}

fn later() -> Duration {
    NOW + Duration::from_secs(60)
}

#[test]
fn a_flood_evicts_its_own_entries_and_no_others() {
    let mut table = BoundedTable::new(100);
    for number in 0..5 {
        table.insert(key(&format!("honest {number}")), number, later(), network(number));
    }
    for number in 0..10_000 {
        table.insert(key(&format!("flood {number}")), 0, later(), network(200));
    }
    assert_eq!(table.entries.len(), 100);
    for number in 0..5 {
        assert_eq!(table.get(&key(&format!("honest {number}")), NOW), Some(&number));
    }
    assert_eq!(table.get(&key("flood 0"), NOW), None);
    assert_eq!(table.get(&key("flood 9999"), NOW), Some(&0));
}

#[test]
fn unproven_entries_are_evicted_before_proven_ones() {
    let mut table = BoundedTable::new(10);
    for number in 0..9 {
        table.insert(key(&format!("proven {number}")), number, later(), network(1));
        table.prove(&key(&format!("proven {number}")));
    }
    for number in 0..1000_u32 {
        table.insert(key(&format!("flood {number}")), 0, later(), Network::of(number.to_be_bytes().into()));
    }
    for number in 0..9 {
        assert_eq!(table.get(&key(&format!("proven {number}")), NOW), Some(&number));
    }
    for number in 0..20 {
        table.insert(key(&format!("more {number}")), number, later(), network(2));
        table.prove(&key(&format!("more {number}")));
    }
    assert_eq!(table.entries.len(), 10, "proven entries are bounded as well");
}

#[test]
fn expired_and_removed_entries_are_gone() {
    let mut table = BoundedTable::new(10);
    table.insert(key("a"), 1, later(), network(1));
    table.insert(key("b"), 2, later(), network(1));
    table.prove(&key("b"));
    assert_eq!(table.get(&key("a"), later()), None, "not before a sweep either");
    table.remove(&key("a"));
    table.sweep(later());
    assert!(table.entries.is_empty() && table.unproven.first().is_none() && table.proven.first().is_none());
}

#[test]
fn a_replaced_entry_counts_once() {
    let mut table = BoundedTable::new(2);
    table.insert(key("kept"), 0, later(), network(1));
    for number in 0..10 {
        table.insert(key("replaced"), number, later(), network(1));
    }
    assert_eq!(table.get(&key("kept"), NOW), Some(&0));
    assert_eq!(table.get(&key("replaced"), NOW), Some(&9));
}

/// The /64 network of this number within the /48 of a site.
fn subnet(site: u16, number: u16) -> Network {
    Network::of([0x2001, 0xdb8, site, number, 0, 0, 0, 1].into())
}

#[test]
fn a_flood_from_all_networks_of_a_site_evicts_its_own_entries_and_no_others() {
    let mut table = BoundedTable::new(100);
    for number in 0..5 {
        table.insert(key(&format!("honest {number}")), number, later(), network(number));
        table.insert(key(&format!("honest neighbour {number}")), number, later(), subnet(u16::from(number), 0));
    }
    for number in 0..1000 {
        table.insert(key(&format!("flood {number}")), 0, later(), subnet(9, number));
    }
    assert_eq!(table.entries.len(), 100);
    for number in 0..5 {
        assert_eq!(table.get(&key(&format!("honest {number}")), NOW), Some(&number), "IPv4");
        assert_eq!(table.get(&key(&format!("honest neighbour {number}")), NOW), Some(&number), "IPv6");
    }
}

#[test]
fn a_flood_from_one_network_of_a_site_spares_the_others_of_the_site() {
    let mut table = BoundedTable::new(100);
    for number in 0..5 {
        table.insert(key(&format!("honest {number}")), number, later(), subnet(9, number));
    }
    for number in 0..1000 {
        table.insert(key(&format!("flood {number}")), 0, later(), subnet(9, 200));
    }
    for number in 0..5 {
        assert_eq!(table.get(&key(&format!("honest {number}")), NOW), Some(&number));
    }
}

#[test]
fn the_oldest_entry_is_evicted_among_networks_with_the_same_number_of_them() {
    let newcomers = |number: u16| subnet(number, 0);
    for (case, first, then) in [
        ("IPv4 first", network(1), newcomers(0)),
        ("IPv6 first", newcomers(0), network(1)),
        ("a greater site first", newcomers(900), newcomers(0)),
    ] {
        let mut table = BoundedTable::new(10);
        table.insert(key("first"), 0, later(), first);
        table.insert(key("second"), 0, later(), then);
        for number in 1..9 {
            table.insert(key(&format!("more {number}")), 0, later(), newcomers(number));
        }
        table.insert(key("one too many"), 0, later(), newcomers(100));
        assert_eq!(table.get(&key("first"), NOW), None, "{case}");
        assert_eq!(table.get(&key("second"), NOW), Some(&0), "{case}");
        table.insert(key("two too many"), 0, later(), newcomers(101));
        assert_eq!(table.get(&key("second"), NOW), None, "{case}");
        assert_eq!(
            table.get(&key("one too many"), NOW),
            Some(&0),
            "{case}: a newcomer stays as long as everybody else"
        );
    }
}

use super::*;

#[test]
fn what_clients_and_upstreams_can_open_never_exceeds_the_limit() {
    for limit in [64, 100, 128, 256, 1024, 4096, 65_536, 1_048_576, usize::MAX / 4] {
        for reserve in [40, 60, 200] {
            let Some(share) = Descriptors::divide(limit, reserve, 100_000) else { continue };
            let most = 2 * share.connections + share.streams + share.pool;
            assert!(most <= limit - reserve, "{limit}, {reserve}: {share:?}");
            assert!(share.connections >= FEWEST_CONNECTIONS, "{limit}, {reserve}: {share:?}");
        }
    }
}

#[test]
fn a_limit_that_leaves_next_to_nothing_is_refused() {
    assert_eq!(Descriptors::divide(64, 60, 100_000), None);
    assert_eq!(Descriptors::divide(32, 60, 100_000), None);
    assert_eq!(Descriptors::divide(128, 60, 100_000).expect("enough").connections, 26);
    assert_eq!(Descriptors::divide(128, 60, 2).expect("as few as wanted").connections, 2);
}

#[test]
fn the_needed_limit_that_the_warning_names_suffices() {
    for wanted in [10, 1000, 100_000] {
        let needed = 60 + 2 * wanted + LARGEST_POOL + LARGEST_STREAM_SHARE;
        assert_eq!(Descriptors::divide(needed, 60, wanted).expect("enough").connections, wanted);
    }
}

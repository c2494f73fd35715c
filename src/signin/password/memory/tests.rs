use super::*;

#[test]
fn a_returned_set_is_reused() {
    let pool = BlockPool::new(64);
    let first = pool.take(64).expect("memory");
    let address = first.as_ptr();
    pool.give(first);
    let second = pool.take(64).expect("memory");
    assert_eq!(second.as_ptr(), address);
    assert_eq!(pool.most_in_use(), 1);
}

#[test]
fn the_pool_holds_no_more_sets_than_hashes_ran_at_once() {
    let pool = BlockPool::new(64);
    for _ in 0..10 {
        let sets: Vec<_> = (0..3).map(|_| pool.take(64).expect("memory")).collect();
        sets.into_iter().for_each(|set| pool.give(set));
    }
    assert_eq!((pool.idle(), pool.most_in_use()), (3, 3));
    pool.release_idle();
    assert_eq!(pool.idle(), 0);
}

#[test]
fn only_sets_of_the_current_size_are_kept() {
    for (case, size, kept) in [("smaller", 32, 0), ("current", 64, 1), ("larger", 128, 0)] {
        let pool = BlockPool::new(64);
        let set = pool.take(size).expect("memory");
        assert!(set.len() >= size, "{case}");
        pool.give(set);
        assert_eq!(pool.idle(), kept, "{case}");
    }
}

#[test]
fn a_failed_allocation_is_reported_and_not_fatal() {
    let pool = BlockPool::new(64);
    assert!(pool.take(usize::MAX / 2048).is_none());
    assert_eq!(pool.sets().in_use, 0);
}

use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn later(hours: u32) -> Timestamp {
    NOW.plus(HOUR * hours)
}

fn read(folder: &tempfile::TempDir, now: Timestamp) -> KeyRing {
    KeyRing::read(folder.path(), HOUR * 8, now).expect("a ring")
}

/// A folder with a key that signs from now on, and what comes after it.
fn folder(starts: &[Timestamp]) -> (tempfile::TempDir, Vec<KeyId>) {
    let folder = tempfile::tempdir().expect("a folder");
    let ids = starts.iter().map(|start| add(folder.path(), TokenAlgorithm::EdDSA, *start).expect("a key")).collect();
    (folder, ids)
}

fn states(ring: &KeyRing, now: Timestamp) -> Vec<(KeyId, KeyState)> {
    ring.states(now).map(|(key, state, _)| (key.id().clone(), state)).collect()
}

#[test]
fn each_key_signs_from_its_time_on_and_is_believed_for_the_grace() {
    use KeyState::*;
    let (folder, ids) = folder(&[NOW, later(1)]);
    let ring = read(&folder, NOW);
    for (case, now, first, second) in [
        ("published before it signs", NOW, Signing, Pending),
        ("just before its turn", NOW.plus(HOUR - Duration::from_secs(1)), Signing, Pending),
        ("its turn", later(1), VerifyOnly, Signing),
        ("within the grace", NOW.plus(HOUR * 9 - Duration::from_millis(1)), VerifyOnly, Signing),
        ("after the grace", later(9), Retired, Signing),
    ] {
        let expected = vec![(ids[1].clone(), second), (ids[0].clone(), first)];
        assert_eq!(states(&ring, now), expected, "{case}");
        let signing = expected.iter().find(|(_, state)| *state == Signing).expect("one that signs");
        assert_eq!(*ring.active(now).id(), signing.0, "{case}");
        let believed = ring.verification_key(&ids[0], now).is_some();
        assert_eq!(believed, first != Retired, "{case}");
        assert_eq!(ring.jwks(now).len(), if first == Retired { 1 } else { 2 }, "{case}");
    }
    assert_eq!(ring.next_end(NOW), Some(later(9)));
    assert_eq!(ring.next_end(later(9)), None);
    assert_eq!(ring.validity(&ids[0]), KeyValidity::Until(later(9)));
    assert_eq!(ring.validity(&ids[1]), KeyValidity::Open);
    assert_eq!(ring.validity(&KeyId::new("eddsa-1-x")), KeyValidity::Gone);
}

#[test]
fn removing_a_key_does_not_bring_the_one_before_it_back() {
    let (folder, ids) = folder(&[NOW, later(1), later(20)]);
    let now = later(21);
    let ring = read(&folder, now);
    assert!(ring.verification_key(&ids[0], now).is_none(), "it was over before");
    let second = ring.verification_key(&ids[1], now).expect("a believed key");
    remove(folder.path(), second, now).expect("removed");
    let before = ring;
    let ring = read(&folder, now);
    assert!(!ring.is_same_as(&before) && ring.is_same_as(&read(&folder, now)));
    assert!(before.has_all_of(&ring) && !ring.has_all_of(&before));
    assert!(ring.verification_key(&ids[0], now).is_none(), "it is still over");
    assert_eq!(ring.validity(&ids[1]), KeyValidity::Gone);
    assert_eq!(*ring.active(now).id(), ids[2]);
}

#[test]
fn a_key_that_is_removed_before_its_turn_leaves_the_others_as_they_were() {
    let (folder, ids) = folder(&[NOW, later(1)]);
    let ring = read(&folder, NOW);
    let waiting = ring.verification_key(&ids[1], NOW).expect("a key");
    remove(folder.path(), waiting, NOW).expect("removed");
    let ring = read(&folder, NOW);
    assert_eq!(ring.validity(&ids[0]), KeyValidity::Open);
    assert_eq!(*ring.active(later(5)).id(), ids[0]);
}

#[test]
fn a_folder_without_a_key_that_has_begun_is_a_fault() {
    let (folder, _) = folder(&[later(1)]);
    assert!(matches!(KeyRing::read(folder.path(), HOUR, NOW), Err(KeyFault::Missing(_))));
    assert!(KeyRing::open(folder.path(), TokenAlgorithm::EdDSA, HOUR, NOW).is_ok(), "a start makes one");
}

#[test]
fn names_that_say_no_time_are_faults() {
    let (folder, ids) = folder(&[NOW]);
    let file = folder.path().join(format!("{}.pem", ids[0]));
    for name in ["eddsa-mine.pem", "eddsa.pem", "rsa-1800000000-x.pem", "es256-1800000000-x.pem"] {
        let other = folder.path().join(name);
        std::fs::copy(&file, &other).expect("a copy");
        assert!(matches!(KeyRing::read(folder.path(), HOUR, NOW), Err(KeyFault::NotAKey(_))), "{name}");
        std::fs::remove_file(&other).expect("gone");
    }
}

#[test]
fn another_algorithm_signs_from_the_next_start_on() {
    let (folder, ids) = folder(&[NOW]);
    let ring = KeyRing::open(folder.path(), TokenAlgorithm::ES256, HOUR, later(1)).expect("a ring");
    assert_eq!(ring.active(later(1)).algorithm(), TokenAlgorithm::ES256);
    assert!(ring.verification_key(&ids[0], later(1)).is_some(), "nobody is signed out");
    assert!(ring.verification_key(&ids[0], later(2)).is_none(), "for the grace");
    let back = KeyRing::open(folder.path(), TokenAlgorithm::EdDSA, HOUR, later(3)).expect("a ring");
    assert_eq!(back.active(later(3)).algorithm(), TokenAlgorithm::EdDSA);
    assert_ne!(*back.active(later(3)).id(), ids[0], "a key that is over does not come back");
}

#[test]
fn with_a_short_grace_a_key_is_published_as_long_as_its_assertions_live() {
    let (folder, _) = folder(&[NOW, later(1)]);
    let ring = KeyRing::read(folder.path(), Duration::ZERO, NOW).expect("a ring");
    let turn = later(1);
    for (case, now, published) in [
        ("before the turn", NOW, 2),
        ("its last assertion lives", turn.plus(Duration::from_secs(59)), 2),
        ("and is over", turn.plus(Duration::from_secs(60)), 1),
    ] {
        assert_eq!(ring.jwks(now).len(), published, "{case}");
    }
}

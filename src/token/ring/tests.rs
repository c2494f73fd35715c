use super::*;
use crate::config::TokenAlgorithm;
use crate::token::key_folder::KeyFolder;
use crate::token::stored_key::KeyChange;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn later(hours: u32) -> Timestamp {
    NOW.plus(HOUR * hours)
}

fn read(folder: &tempfile::TempDir, now: Timestamp) -> KeyRing {
    KeyFolder::new(folder.path()).read_ring(HOUR * 8, now).expect("a ring")
}

fn key(start: Timestamp) -> StoredKey {
    StoredKey::generate(TokenAlgorithm::EdDSA, start).expect("a key")
}

fn remove(folder: &tempfile::TempDir, key: &SigningKey, now: Timestamp) {
    KeyFolder::new(folder.path()).apply(&StoredKey::removal(key, now)).expect("removed");
}

/// A key folder with one key per start time.
fn folder(starts: &[Timestamp]) -> (tempfile::TempDir, Vec<KeyId>) {
    let folder = tempfile::tempdir().expect("a folder");
    let keys: Vec<StoredKey> = starts.iter().map(|start| key(*start)).collect();
    for key in &keys {
        KeyFolder::new(folder.path()).apply(&KeyChange::Put(key.clone())).expect("a file");
    }
    (folder, keys.into_iter().map(|key| key.id).collect())
}

fn states(ring: &KeyRing, now: Timestamp) -> Vec<(KeyId, KeyState)> {
    ring.states(now).map(|(key, state, _)| (key.id().clone(), state)).collect()
}

#[test]
fn a_key_signs_from_its_start_time_and_verifies_until_its_grace_ends() {
    use KeyState::*;
    let (folder, ids) = folder(&[NOW, later(1)]);
    let ring = read(&folder, NOW);
    for (case, now, first, second) in [
        ("published before it signs", NOW, Signing, Pending),
        ("just before it signs", NOW.plus(HOUR - Duration::from_secs(1)), Signing, Pending),
        ("when it begins to sign", later(1), VerifyOnly, Signing),
        ("within the grace", NOW.plus(HOUR * 9 - Duration::from_millis(1)), VerifyOnly, Signing),
        ("after the grace", later(9), Retired, Signing),
    ] {
        let expected = vec![(ids[1].clone(), second), (ids[0].clone(), first)];
        assert_eq!(states(&ring, now), expected, "{case}");
        let signing = expected.iter().find(|(_, state)| *state == Signing).expect("one that signs");
        assert_eq!(*ring.active(now).id(), signing.0, "{case}");
        let verifies = ring.verification_key(&ids[0], now).is_some();
        assert_eq!(verifies, first != Retired, "{case}");
        assert_eq!(ring.jwks(now).len(), if first == Retired { 1 } else { 2 }, "{case}");
    }
    assert_eq!(ring.next_end(NOW), Some(later(9)));
    assert_eq!(ring.next_end(later(9)), None);
    assert_eq!(ring.validity(&ids[0]), KeyValidity::Until(later(9)));
    assert_eq!(ring.validity(&ids[1]), KeyValidity::Open);
    assert_eq!(ring.validity(&KeyId::new("eddsa-1-x")), KeyValidity::Gone);
}

#[test]
fn removing_a_key_does_not_revive_its_predecessor() {
    let (folder, ids) = folder(&[NOW, later(1), later(20)]);
    let now = later(21);
    let ring = read(&folder, now);
    assert!(ring.verification_key(&ids[0], now).is_none(), "retired before");
    let second = ring.verification_key(&ids[1], now).expect("a key that verifies");
    remove(&folder, second, now);
    let before = ring;
    let ring = read(&folder, now);
    assert!(!ring.is_same_as(&before) && ring.is_same_as(&read(&folder, now)));
    assert!(before.has_all_of(&ring) && !ring.has_all_of(&before));
    assert!(ring.verification_key(&ids[0], now).is_none(), "still retired");
    assert_eq!(ring.validity(&ids[1]), KeyValidity::Gone);
    assert_eq!(*ring.active(now).id(), ids[2]);
}

#[test]
fn removing_a_pending_key_leaves_the_other_keys_unchanged() {
    let (folder, ids) = folder(&[NOW, later(1)]);
    let ring = read(&folder, NOW);
    let pending = ring.verification_key(&ids[1], NOW).expect("a key");
    remove(&folder, pending, NOW);
    let ring = read(&folder, NOW);
    assert_eq!(ring.validity(&ids[0]), KeyValidity::Open);
    assert_eq!(*ring.active(later(5)).id(), ids[0]);
}

#[test]
fn a_folder_without_a_signing_key_is_an_error() {
    let (folder, _) = folder(&[later(1)]);
    assert!(matches!(KeyFolder::new(folder.path()).read_ring(HOUR, NOW), Err(KeyFault::Missing(_))));
    assert!(KeyFolder::new(folder.path()).open_ring(TokenAlgorithm::EdDSA, HOUR, NOW).is_ok(), "opening generates one");
}

#[test]
fn key_files_with_malformed_names_are_errors() {
    let (folder, ids) = folder(&[NOW]);
    let file = folder.path().join(format!("{}.pem", ids[0]));
    for name in ["eddsa-mine.pem", "eddsa.pem", "rsa-1800000000-x.pem", "es256-1800000000-x.pem"] {
        let other = folder.path().join(name);
        std::fs::copy(&file, &other).expect("a copy");
        assert!(matches!(KeyFolder::new(folder.path()).read_ring(HOUR, NOW), Err(KeyFault::NotAKey(_))), "{name}");
        std::fs::remove_file(&other).expect("gone");
    }
}

#[test]
fn a_change_of_algorithm_generates_a_key_that_signs_at_the_next_start() {
    let (folder, ids) = folder(&[NOW]);
    let ring = KeyFolder::new(folder.path()).open_ring(TokenAlgorithm::ES256, HOUR, later(1)).expect("a ring");
    assert_eq!(ring.active(later(1)).algorithm(), TokenAlgorithm::ES256);
    assert!(ring.verification_key(&ids[0], later(1)).is_some(), "within the grace");
    assert!(ring.verification_key(&ids[0], later(2)).is_none(), "after the grace");
    let back = KeyFolder::new(folder.path()).open_ring(TokenAlgorithm::EdDSA, HOUR, later(3)).expect("a ring");
    assert_eq!(back.active(later(3)).algorithm(), TokenAlgorithm::EdDSA);
    assert_ne!(*back.active(later(3)).id(), ids[0], "a retired key does not sign again");
}

#[test]
fn a_replaced_key_is_published_for_the_lifetime_of_its_assertions() {
    let (folder, _) = folder(&[NOW, later(1)]);
    let ring = KeyFolder::new(folder.path()).read_ring(Duration::ZERO, NOW).expect("a ring");
    let replaced = later(1);
    for (case, now, published) in [
        ("before it is replaced", NOW, 2),
        ("its last assertion is valid", replaced.plus(Duration::from_secs(59)), 2),
        ("its last assertion has expired", replaced.plus(Duration::from_secs(60)), 1),
    ] {
        assert_eq!(ring.jwks(now).len(), published, "{case}");
    }
}

#[test]
fn a_ring_follows_a_change_although_it_cannot_read_every_key() {
    let (first, second, third) = (key(NOW), key(later(1)), key(later(2)));
    let ring = KeyRing::of_fleet(&[first.clone(), second.clone()], HOUR * 8).expect("a ring");
    let unreadable = |key: &StoredKey| StoredKey { private: PrivateKey::Unreadable, ..key.clone() };
    let removed = |key: &StoredKey| StoredKey { private: PrivateKey::Removed, ..key.clone() };

    let stored = [unreadable(&second), unreadable(&third), removed(&first)];
    let next = ring.successor(&stored).expect("a ring");
    assert_eq!(next.validity(&first.id), KeyValidity::Gone, "the removal holds");
    assert_eq!(
        next.validity(&second.id),
        KeyValidity::Until(later(10)),
        "a known key, until its successor's grace ends"
    );
    assert_eq!(next.validity(&third.id), KeyValidity::Unknown, "a key that other gateways can read");
    assert_eq!(next.validity(&KeyId::new("eddsa-1-x")), KeyValidity::Unknown, "a key of which only others know");
    assert!(next.verification_key(&second.id, later(10)).is_none(), "its time is over although nothing follows it");

    let last = next.successor(&[unreadable(&second), removed(&third), removed(&first)]).expect("a ring");
    assert!(!last.is_same_as(&next), "the removal of a key that could not be read is a change");
    assert_eq!(last.validity(&third.id), KeyValidity::Gone);

    let fault = KeyRing::of_fleet(&stored, HOUR * 8).err();
    assert!(matches!(fault, Some(KeyFault::Unreadable(id)) if id == second.id), "a start reads every key");
    assert!(matches!(ring.successor(&[removed(&first)]), Err(KeyFault::Empty)));
}

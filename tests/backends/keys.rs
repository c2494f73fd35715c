//! The contract of `KeyRecords`, and of the signing keys that several gateways keep in one directory. `suite!` runs it on
//! each engine.

use std::sync::Arc;
use std::time::Duration;

use deskgate::admin::keys::{DirectoryKeys, KeyError, KeyRotation, KeySettings, KeyStorage, OpenedKeys, copy_keys};
use deskgate::config::TokenAlgorithm;
use deskgate::directory::Directory;
use deskgate::directory::keys::{KeyGeneration, KeyRecord, KeyRecordChange};
use deskgate::directory::sql::SqlDirectory;
use deskgate::domain::clock::{Clock, Timestamp};
use deskgate::domain::session::{KeyId, Session};
use deskgate::domain::write::WriteOutcome;
use deskgate::sessions::SessionCache;
use deskgate::store::Store;
use deskgate::store::embedded::EmbeddedStore;
use deskgate::token::Tokens;
use deskgate::token::key_folder::KeyFolder;
use deskgate::token::ring::{KeyFault, KeyRing, KeyState};
use deskgate::token::vault::Vault;

use crate::servers;
use crate::store::{LIFETIME, session};

const HOUR: Duration = Duration::from_secs(3600);
const CURRENT: [u8; 32] = [1; 32];
const OTHER: [u8; 32] = [2; 32];

/// A directory as several gateways see it, and, for SQLite, its folder.
struct Subject {
    gateways: Vec<Arc<dyn Directory>>,
    _folder: Option<tempfile::TempDir>,
}

async fn sqlite() -> Subject {
    let folder = tempfile::tempdir().expect("folder");
    let directory = SqlDirectory::open(&folder.path().join("directory.db"), Clock::system()).await.expect("directory");
    let directory: Arc<dyn Directory> = Arc::new(directory);
    Subject { gateways: vec![directory; 8], _folder: Some(folder) }
}

async fn postgres() -> Subject {
    let url = servers::postgres::database();
    let mut gateways: Vec<Arc<dyn Directory>> = Vec::new();
    for _ in 0..8 {
        let settings = servers::postgres::settings(&url);
        gateways.push(Arc::new(SqlDirectory::connect(settings, Clock::system()).await.expect("directory")));
    }
    Subject { gateways, _folder: None }
}

impl Subject {
    fn directory(&self) -> &dyn Directory {
        &*self.gateways[0]
    }

    /// The keys as one gateway with this secret, and perhaps previous ones, uses them.
    fn storage(&self, gateway: usize, current: [u8; 32], previous: &[[u8; 32]]) -> KeyStorage {
        KeyStorage::Directory(DirectoryKeys::new(self.gateways[gateway].clone(), Vault::new(&current, previous)))
    }

    async fn records(&self) -> Vec<KeyRecord> {
        self.directory().key_records().await.expect("records").records
    }
}

fn settings(algorithm: TokenAlgorithm) -> KeySettings {
    KeySettings { algorithm, lead: HOUR, grace: HOUR }
}

fn no_files() -> KeyFolder {
    KeyFolder::new("/nonexistent")
}

async fn open(storage: &KeyStorage, now: Timestamp) -> Result<OpenedKeys, KeyError> {
    storage.open(&settings(TokenAlgorithm::EdDSA), &no_files(), now).await
}

fn ids(ring: &KeyRing, now: Timestamp) -> Vec<KeyId> {
    ring.states(now).map(|(key, ..)| key.id().clone()).collect()
}

fn record(id: &str, private_key: Option<&str>) -> KeyRecord {
    KeyRecord { id: KeyId::new(id), private_key: private_key.map(str::to_owned) }
}

async fn keys_change_only_at_the_expected_generation(subject: &Subject) {
    let directory = subject.directory();
    let first = directory.key_records().await.expect("records");
    assert_eq!((first.generation, first.records.len()), (KeyGeneration(0), 0));
    let add = [KeyRecordChange::Put(record("a", Some("x"))), KeyRecordChange::Put(record("b", Some("y")))];
    assert_eq!(directory.change_keys(first.generation, &add).await.expect("change"), WriteOutcome::Applied);
    assert_eq!(directory.change_keys(first.generation, &add).await.expect("change"), WriteOutcome::Conflict);
    let second = directory.key_records().await.expect("records");
    assert_eq!(second.generation, directory.key_generation().await.expect("generation"));
    assert_ne!(second.generation, first.generation);
    assert_eq!(second.records, [record("a", Some("x")), record("b", Some("y"))]);
    let remove = [KeyRecordChange::Put(record("a", None)), KeyRecordChange::Delete(KeyId::new("b"))];
    let refused = directory.change_keys(first.generation, &remove).await.expect("change");
    assert_eq!((refused, subject.records().await), (WriteOutcome::Conflict, second.records), "none of the changes");
    assert_eq!(directory.change_keys(second.generation, &remove).await.expect("change"), WriteOutcome::Applied);
    assert_eq!(subject.records().await, [record("a", None)]);
}

async fn gateways_that_start_at_once_have_one_key(subject: &Subject) {
    let now = Clock::system().now();
    let mut starts = Vec::new();
    for gateway in 0..subject.gateways.len() {
        let storage = subject.storage(gateway, CURRENT, &[]);
        // Their clocks differ.
        let own_now = now.plus(Duration::from_secs(5 * gateway as u64));
        starts.push(tokio::spawn(async move { open(&storage, own_now).await.expect("keys").ring }));
    }
    let mut rings = Vec::new();
    for start in starts {
        rings.push(start.await.expect("a start"));
    }
    assert_eq!(subject.records().await.len(), 1);
    for ring in &rings {
        assert_eq!(ring.active(now).id(), rings[0].active(now).id());
    }
}

async fn private_keys_are_unreadable_without_the_secret(subject: &Subject) {
    let now = Clock::system().now();
    open(&subject.storage(0, CURRENT, &[]), now).await.expect("keys");
    let before = subject.records().await;
    assert!(before[0].private_key.as_ref().is_some_and(|key| key.starts_with("v1.")), "encrypted: {before:?}");
    let refused = open(&subject.storage(0, OTHER, &[]), now).await.err();
    assert!(matches!(refused, Some(KeyError::Fault(KeyFault::Unreadable(_)))), "{refused:?}");
    assert_eq!(subject.records().await, before, "another secret changes nothing and adds no key");

    // A ciphertext is tied to its id.
    let moved = record("eddsa-1800000000000-moved1", before[0].private_key.as_deref());
    let generation = subject.directory().key_generation().await.expect("generation");
    subject.directory().change_keys(generation, &[KeyRecordChange::Put(moved)]).await.expect("change");
    let refused = open(&subject.storage(0, CURRENT, &[]), now).await.err();
    assert!(matches!(refused, Some(KeyError::Fault(KeyFault::Unreadable(_)))), "{refused:?}");
}

async fn a_changed_secret_encrypts_the_keys_again(subject: &Subject) {
    let now = Clock::system().now();
    let before = open(&subject.storage(0, CURRENT, &[]), now).await.expect("keys").ring;
    open(&subject.storage(0, OTHER, &[CURRENT]), now).await.expect("both secrets");
    let after = open(&subject.storage(0, OTHER, &[]), now).await.expect("the new secret alone").ring;
    assert_eq!(ids(&before, now), ids(&after, now));
    assert!(open(&subject.storage(0, CURRENT, &[]), now).await.is_err(), "the old secret opens nothing");
}

async fn a_changed_algorithm_adds_one_key_that_waits(subject: &Subject) {
    let now = Clock::system().now();
    let old = open(&subject.storage(0, CURRENT, &[]), now).await.expect("keys").ring;
    let es256 = settings(TokenAlgorithm::ES256);
    for gateway in [0, 1] {
        subject.storage(gateway, CURRENT, &[]).open(&es256, &no_files(), now).await.expect("keys");
    }
    // A gateway with the old configuration does not replace the pending key.
    let ring = open(&subject.storage(2, CURRENT, &[]), now).await.expect("keys").ring;
    let states: Vec<KeyState> = ring.states(now).map(|(_, state, _)| state).collect();
    assert_eq!(states, [KeyState::Pending, KeyState::Signing]);
    assert_eq!(ring.active(now).id(), old.active(now).id());
    assert_eq!(ring.active(now.plus(HOUR)).algorithm(), TokenAlgorithm::ES256);
}

async fn key_files_move_to_an_empty_directory_and_back(subject: &Subject) {
    let now = Clock::system().now();
    let folder = tempfile::tempdir().expect("folder");
    let files = KeyFolder::new(folder.path().join("keys"));
    let before = files.open_ring(TokenAlgorithm::EdDSA, HOUR, now).expect("keys");
    std::fs::write(folder.path().join("keys").join("eddsa-1700000000000-abcdef.removed"), "").expect("a file");
    let storage = subject.storage(0, CURRENT, &[]);
    let imported = storage.open(&settings(TokenAlgorithm::EdDSA), &files, now).await.expect("keys").ring;
    assert_eq!(ids(&imported, now), ids(&before, now));
    assert_eq!(subject.records().await.len(), 2, "a removed key as well");

    let back = KeyStorage::Folder(KeyFolder::new(folder.path().join("back")));
    assert_eq!(copy_keys(&storage, &back).await.expect("a copy"), 2);
    assert_eq!(copy_keys(&storage, &back).await.expect("again"), 2);
    let copied = KeyFolder::new(folder.path().join("back")).read_ring(HOUR, now).expect("keys");
    assert!(copied.is_same_as(&imported) && imported.is_same_as(&copied));

    // Another gateway's files are not mixed with these keys.
    let others = KeyFolder::new(folder.path().join("others"));
    others.open_ring(TokenAlgorithm::EdDSA, HOUR, now).expect("keys");
    let again = storage.open(&settings(TokenAlgorithm::EdDSA), &others, now).await.expect("keys").ring;
    assert!(again.is_same_as(&imported));
    let refused = copy_keys(&storage, &KeyStorage::Folder(others)).await;
    assert!(matches!(refused, Err(KeyError::OtherKeys(_))), "{refused:?}");
}

async fn a_damaged_key_file_is_not_replaced_by_a_new_key(subject: &Subject) {
    let folder = tempfile::tempdir().expect("folder");
    let pem = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    std::fs::write(folder.path().join("eddsa-1700000000000-abcdef.pem"), pem).expect("a file");
    let storage = subject.storage(0, CURRENT, &[]);
    let files = KeyFolder::new(folder.path());
    let refused = storage.open(&settings(TokenAlgorithm::EdDSA), &files, Clock::system().now()).await.err();
    assert!(matches!(refused, Some(KeyError::Fault(KeyFault::NotAKey(_)))), "{refused:?}");
    assert!(subject.records().await.is_empty());
}

async fn sessions_of_a_key_that_one_gateway_lacks_end_only_with_its_removal(subject: &Subject) {
    let (folder, clock) = (tempfile::tempdir().expect("folder"), Clock::system());
    let store = EmbeddedStore::open(&folder.path().join("state.db"), clock.clone()).await.expect("store");
    let store: Arc<dyn Store> = Arc::new(store);
    let old = open(&subject.storage(0, CURRENT, &[]), clock.now()).await.expect("keys");
    let old_key = old.ring.newest().id().clone();
    let tokens = Arc::new(Tokens::new(old.ring, "https://desk.example".to_owned(), Duration::ZERO));
    let gateway = KeyRotation::new(
        settings(TokenAlgorithm::EdDSA),
        subject.storage(0, CURRENT, &[]),
        old.generation,
        tokens.clone(),
        Arc::new(SessionCache::new(store.clone(), 10, LIFETIME, Duration::ZERO)),
        clock.clone(),
    );

    // Another gateway has the next secret already, which this one was not given.
    let es256 = settings(TokenAlgorithm::ES256);
    let other = subject.storage(1, OTHER, &[CURRENT]).open(&es256, &no_files(), clock.now()).await.expect("keys").ring;
    let new = other.newest().id().clone();
    let kept = Session { key_id: Some(new.clone()), ..session("s1", &clock) };
    store.create(&kept).await.expect("create");
    gateway.update_sessions().await.expect("an update");
    assert!(tokens.keys().verification_key(&new, clock.now()).is_none(), "this gateway cannot verify its tokens");
    assert!(store.find(&kept.id).await.expect("find").is_some(), "the others can");

    let generation = subject.directory().key_generation().await.expect("generation");
    let removal = [KeyRecordChange::Put(record(new.as_str(), None))];
    subject.directory().change_keys(generation, &removal).await.expect("change");
    gateway.update_sessions().await.expect("an update");
    assert_eq!(store.find(&kept.id).await.expect("find"), None, "the removal is known to all");

    // The sessions of the old key are too long, for all that this gateway remembers; it cannot ask.
    let expires_at = clock.now().plus(HOUR * 5);
    let long = Session { key_id: Some(old_key), expires_at, ..session("s2", &clock) };
    store.create(&long).await.expect("create");
    subject.gateways[0].close().await;
    assert!(gateway.update_sessions().await.is_err(), "the keys cannot be read");
    assert_eq!(store.find(&long.id).await.expect("find"), Some(long));
}

/// Runs every test on each engine.
macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        suite!(@on sqlite: $($test),*);
        suite!(@on postgres: $($test),*);
    };
    (@on $make:ident: $($test:ident),*) => {
        mod $make {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(&super::$make().await).await;
                }
            )*
        }
    };
}

suite!(
    keys_change_only_at_the_expected_generation,
    gateways_that_start_at_once_have_one_key,
    private_keys_are_unreadable_without_the_secret,
    a_changed_secret_encrypts_the_keys_again,
    a_changed_algorithm_adds_one_key_that_waits,
    key_files_move_to_an_empty_directory_and_back,
    a_damaged_key_file_is_not_replaced_by_a_new_key,
    sessions_of_a_key_that_one_gateway_lacks_end_only_with_its_removal,
);

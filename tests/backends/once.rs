//! The contract of `OnceStore`. `suite!` runs it against every implementation.

use std::sync::Arc;
use std::time::Duration;

use deskgate::config::StoreConfig;
use deskgate::domain::clock::Clock;
use deskgate::domain::network::Network;
use deskgate::domain::secret::Digest;
use deskgate::domain::write::WriteOutcome;
use deskgate::store::StoreError;
use deskgate::store::in_memory_claims::InMemoryClaims;
use deskgate::store::once::{ClaimKey, ClaimKind, ClaimOutcome, OnceStore};
use deskgate::store::redis::RedisClaims;

use crate::redis_servers::{config, open};
use crate::servers::redis::{self, RedisServer};

const LIFETIME: Duration = Duration::from_secs(60);

/// A store under test.
struct Subject {
    claims: Arc<dyn OnceStore>,
    /// The same claims as another gateway sees them.
    elsewhere: Arc<dyn OnceStore>,
    passage: Passage,
}

/// How time passes for the claims of a store.
enum Passage {
    Clock(Clock),
    /// By the server's clock.
    Server,
}

impl Passage {
    async fn pass(&self, span: Duration) {
        match self {
            Passage::Clock(clock) => clock.advance(span),
            Passage::Server => tokio::time::sleep(span * 2).await,
        }
    }
}

async fn in_memory() -> Subject {
    let clock = Clock::system();
    let claims = Arc::new(InMemoryClaims::new(clock.clone()));
    Subject { claims: claims.clone(), elsewhere: claims, passage: Passage::Clock(clock) }
}

async fn on_servers(url: String) -> Subject {
    let config = config(&url);
    let claims = async || Arc::new(RedisClaims::new(Arc::new(open(&config).await.expect("servers"))));
    Subject { claims: claims().await, elsewhere: claims().await, passage: Passage::Server }
}

async fn standalone() -> Subject {
    on_servers(redis::standalone()).await
}

async fn sentinel() -> Subject {
    on_servers(redis::sentinel()).await
}

async fn cluster() -> Subject {
    on_servers(redis::cluster()).await
}

fn network(last: u8) -> Network {
    Network::of([192, 0, 2, last].into())
}

fn key(kind: ClaimKind, name: &str) -> ClaimKey {
    ClaimKey { kind, digest: Digest::of(&[name]), network: network(1) }
}

fn taken(value: &str) -> ClaimOutcome {
    ClaimOutcome::Taken(value.to_owned())
}

async fn first_claim_wins_and_the_others_learn_its_value(subject: &Subject) {
    let (code, flow) = (key(ClaimKind::Code, "one"), key(ClaimKind::Flow, "one"));
    assert_eq!(subject.claims.claimed(&code).await.expect("read"), None);
    assert_eq!(subject.claims.claim(&code, "redirect", LIFETIME).await.expect("claim"), ClaimOutcome::First);
    let elsewhere = ClaimKey { network: network(2), ..code.clone() };
    assert_eq!(subject.elsewhere.claim(&elsewhere, "agent", LIFETIME).await.expect("claim"), taken("redirect"));
    assert_eq!(subject.elsewhere.claimed(&elsewhere).await.expect("read").as_deref(), Some("redirect"));
    assert_eq!(subject.claims.claim(&flow, "", LIFETIME).await.expect("claim"), ClaimOutcome::First, "another kind");
    assert_eq!(subject.claims.claim(&flow, "x", LIFETIME).await.expect("claim"), taken(""), "an empty value counts");
}

async fn one_of_many_concurrent_claims_is_the_first(subject: &Subject) {
    let key = key(ClaimKind::BindProof, "raced");
    let claims = (0..50).map(|number| {
        let (claims, key) = (if number % 2 == 0 { &subject.claims } else { &subject.elsewhere }, &key);
        async move { (number, claims.claim(key, &number.to_string(), LIFETIME).await.expect("claim")) }
    });
    let outcomes = futures::future::join_all(claims).await;
    let winners: Vec<i32> =
        outcomes.iter().filter(|(_, outcome)| *outcome == ClaimOutcome::First).map(|(number, _)| *number).collect();
    let [winner] = winners[..] else { panic!("{winners:?}") };
    let others = outcomes.iter().filter(|(number, _)| *number != winner);
    assert!(others.clone().all(|(_, outcome)| *outcome == taken(&winner.to_string())), "{outcomes:?}");
}

async fn claims_are_settled_and_released_only_by_their_holder(subject: &Subject) {
    let key = key(ClaimKind::Callback, "result");
    let settle =
        async |seen: &str, value: &str| subject.claims.settle(&key, seen, value, LIFETIME).await.expect("settle");
    assert_eq!(settle("mine", "early").await, WriteOutcome::Conflict, "nothing is claimed");
    subject.claims.claim(&key, "mine", LIFETIME).await.expect("claim");
    assert_eq!(settle("other", "wrong").await, WriteOutcome::Conflict);
    assert_eq!(settle("mine", "done").await, WriteOutcome::Applied);
    assert_eq!(subject.elsewhere.claimed(&key).await.expect("read").as_deref(), Some("done"));
    subject.claims.release(&key, "mine").await.expect("release");
    assert_eq!(subject.claims.claimed(&key).await.expect("read").as_deref(), Some("done"), "settled since");
    subject.claims.release(&key, "done").await.expect("release");
    assert_eq!(subject.elsewhere.claim(&key, "next", LIFETIME).await.expect("claim"), ClaimOutcome::First);
}

async fn expired_claim_can_be_claimed_again(subject: &Subject) {
    let short = Duration::from_millis(300);
    let (brief, kept) = (key(ClaimKind::Code, "brief"), key(ClaimKind::Code, "kept"));
    for key in [&brief, &kept] {
        subject.claims.claim(key, "first", short).await.expect("claim");
    }
    assert_eq!(subject.claims.settle(&kept, "first", "longer", LIFETIME).await.expect("settle"), WriteOutcome::Applied);
    subject.passage.pass(short).await;
    assert_eq!(subject.claims.claimed(&brief).await.expect("read"), None);
    assert_eq!(subject.claims.settle(&brief, "first", "x", LIFETIME).await.expect("settle"), WriteOutcome::Conflict);
    assert_eq!(subject.claims.claim(&brief, "second", LIFETIME).await.expect("claim"), ClaimOutcome::First);
    assert_eq!(subject.claims.claim(&kept, "second", LIFETIME).await.expect("claim"), taken("longer"));
}

/// More than any store keeps of one network, and far less than all networks together may claim.
async fn flood_of_one_network_forgets_its_own_claims_only(subject: &Subject) {
    const FLOOD: usize = 25_000;
    let claim = async |name: String, network: Network| {
        let key = ClaimKey { kind: ClaimKind::Callback, digest: Digest::of(&[&name]), network };
        subject.claims.claim(&key, "", LIFETIME).await.expect("claim")
    };
    let confirmed = ClaimKey { network: network(200), ..key(ClaimKind::Callback, "confirmed") };
    subject.claims.claim(&confirmed, "", LIFETIME).await.expect("claim");
    subject.claims.prove(&confirmed).await.expect("prove");
    for number in 0..5 {
        claim(format!("honest {number}"), network(number)).await;
    }
    for batch in 0..FLOOD / 500 {
        let flood = (0..500).map(|number| claim(format!("flood {}", batch * 500 + number), network(200)));
        futures::future::join_all(flood).await;
    }
    for number in 0..5 {
        assert_eq!(claim(format!("honest {number}"), network(number)).await, taken(""), "{number}");
    }
    assert_eq!(claim(format!("flood {}", FLOOD - 1), network(200)).await, taken(""), "the newest stay");
    assert_eq!(subject.elsewhere.claimed(&confirmed).await.expect("read").as_deref(), Some(""), "confirmed");
    assert_eq!(claim("flood 0".to_owned(), network(200)).await, ClaimOutcome::First, "the oldest was forgotten");
}

macro_rules! suite {
    ($($make:ident),*: $tests:tt) => {
        $(suite!(@ $make $tests);)*
    };
    (@ $make:ident [$($test:ident),* $(,)?]) => {
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

suite!(in_memory, standalone, sentinel, cluster: [
    first_claim_wins_and_the_others_learn_its_value,
    one_of_many_concurrent_claims_is_the_first,
    claims_are_settled_and_released_only_by_their_holder,
    expired_claim_can_be_claimed_again,
    flood_of_one_network_forgets_its_own_claims_only,
]);

#[tokio::test]
async fn claim_fails_while_the_server_is_away() {
    let mut server = RedisServer::start(&[]);
    let config = StoreConfig { timeout: Duration::from_millis(400).into(), ..config(&server.url()) };
    let claims = RedisClaims::new(Arc::new(open(&config).await.expect("servers")));
    let key = key(ClaimKind::BindProof, "one");
    assert_eq!(claims.claim(&key, "", LIFETIME).await.expect("claim"), ClaimOutcome::First);
    server.kill();
    assert!(matches!(claims.claim(&key, "", LIFETIME).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(claims.claimed(&key).await, Err(StoreError::Unavailable(_))));
}

/// Whatever is written for a sign-in disappears by itself, and names neither the credential nor the client's page.
#[tokio::test]
async fn every_key_of_a_claim_expires_and_holds_only_digests() {
    let server = RedisServer::start(&[]);
    let config = config(&server.url());
    let claims = RedisClaims::new(Arc::new(open(&config).await.expect("servers")));
    for kind in ClaimKind::ALL {
        claims.claim(&key(kind, "the-credential"), "value", LIFETIME).await.expect("claim");
    }
    let keys = server.ask("KEYS *\r\n").expect("keys");
    assert!(keys.contains(":c:code:") && !keys.contains("the-credential"), "{keys}");
    let names = keys.split("\r\n").filter(|line| line.starts_with(&config.prefix) && line.contains(":c"));
    for name in names {
        let left = server.ask(&format!("PTTL {name}\r\n")).expect("an answer");
        let left: i64 = left.trim_start_matches(':').trim().parse().expect("milliseconds");
        assert!((1..=60_000).contains(&left), "{name}: {left}");
    }
}

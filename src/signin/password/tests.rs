use std::sync::mpsc;
use std::time::Instant;

use tokio::task::JoinSet;

use super::*;

const TEXT: &str = "copper-lantern-drizzle";

fn password() -> NewPassword {
    NewPassword::check(TEXT, &[]).expect("a password")
}

/// The cheapest Argon2 parameters.
fn cheap() -> PasswordSettings {
    PasswordSettings { cost: Cost::new(8, 1, 1).expect("a cost"), ..PasswordSettings::default() }
}

async fn verify(passwords: &Passwords, hash: Option<&PasswordHash>, text: &str) -> Result<PasswordMatch, Busy> {
    passwords.verify(passwords.reserve()?, hash, text).await
}

#[tokio::test]
async fn a_password_matches_only_its_own_hash() {
    let passwords = Passwords::new(cheap());
    let hash = passwords.hash(&password()).await.expect("not busy");
    let other = NewPassword::check("ventilator sandwich moth", &[]).expect("a password");
    let other = passwords.hash(&other).await.expect("not busy");
    let right = PasswordMatch::Right { rehashed: None };
    let table = [
        ("right", Some(&hash), TEXT, right.clone()),
        ("one letter less", Some(&hash), "copper-lantern-drizzl", PasswordMatch::Wrong),
        ("one letter more", Some(&hash), "copper-lantern-drizzle ", PasswordMatch::Wrong),
        ("other case", Some(&hash), "Copper-lantern-drizzle", PasswordMatch::Wrong),
        ("empty", Some(&hash), "", PasswordMatch::Wrong),
        ("another account's hash", Some(&other), TEXT, PasswordMatch::Wrong),
        ("no such account", None, TEXT, PasswordMatch::Wrong),
        ("no such account, empty", None, "", PasswordMatch::Wrong),
    ];
    for (case, hash, text, expected) in table {
        assert_eq!(verify(&passwords, hash, text).await, Ok(expected), "{case}");
    }
}

#[tokio::test]
async fn text_that_cannot_be_a_password_is_wrong_even_for_the_hash_of_an_empty_one() {
    let passwords = Passwords::new(cheap());
    // Cannot be set, but could be in a table: the hash of an empty password.
    let empty = passwords.hasher.hash("").expect("a hash");
    assert_eq!(verify(&passwords, Some(&empty), "").await, Ok(PasswordMatch::Right { rehashed: None }));
    let megabyte = "x".repeat(1 << 20);
    for (case, text) in [("NUL", "\0"), ("trailing NUL", "copper\0"), ("a megabyte", &megabyte), ("line break", "\n")] {
        assert_eq!(verify(&passwords, Some(&empty), text).await, Ok(PasswordMatch::Wrong), "{case}");
        assert_eq!(verify(&passwords, None, text).await, Ok(PasswordMatch::Wrong), "{case}");
    }
}

#[tokio::test]
async fn bytes_after_the_72nd_count() {
    let passwords = Passwords::new(cheap());
    let long = format!("{TEXT}{}", "y".repeat(200));
    let hash = passwords.hash(&NewPassword::check(&long, &[]).expect("a password")).await.expect("not busy");
    assert_eq!(verify(&passwords, Some(&hash), &long[..long.len() - 1]).await, Ok(PasswordMatch::Wrong));
    assert_eq!(verify(&passwords, Some(&hash), &long).await, Ok(PasswordMatch::Right { rehashed: None }));
}

#[tokio::test]
async fn composed_and_decomposed_letters_are_the_same_password() {
    let passwords = Passwords::new(cheap());
    let composed = NewPassword::check("café-zürich-crème", &[]).expect("a password");
    let hash = passwords.hash(&composed).await.expect("not busy");
    let decomposed = "cafe\u{301}-zu\u{308}rich-cre\u{300}me";
    assert_eq!(verify(&passwords, Some(&hash), decomposed).await, Ok(PasswordMatch::Right { rehashed: None }));
}

#[tokio::test]
async fn hashes_of_the_same_password_differ() {
    let passwords = Passwords::new(cheap());
    let (one, other) = (passwords.hash(&password()).await, passwords.hash(&password()).await);
    assert_ne!(one, other);
}

#[tokio::test]
async fn a_right_password_rehashes_other_parameters_and_a_wrong_one_does_not() {
    let before = Passwords::new(cheap());
    let old = before.hash(&password()).await.expect("not busy");
    for (case, cost) in [("more expensive", Cost::new(64, 2, 1)), ("cheaper", Cost::new(8, 2, 1))] {
        let today = Passwords::new(PasswordSettings { cost: cost.expect("a cost"), ..PasswordSettings::default() });
        assert_eq!(verify(&today, Some(&old), "wrong").await, Ok(PasswordMatch::Wrong), "{case}");
        let checked = verify(&today, Some(&old), TEXT).await;
        let Ok(PasswordMatch::Right { rehashed: Some(rehashed) }) = checked else { panic!("{case}: {checked:?}") };
        assert_eq!(verify(&today, Some(&rehashed), TEXT).await, Ok(PasswordMatch::Right { rehashed: None }), "{case}");
    }
}

#[tokio::test]
async fn the_default_cost_is_owasps() {
    let hash = Passwords::new(PasswordSettings::default()).hash(&password()).await.expect("not busy");
    assert!(hash.phc().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
    assert_eq!(PasswordHash::parse(&hash.phc()), Ok(hash));
}

#[tokio::test]
async fn under_a_flood_two_hashes_run_64_wait_and_the_rest_are_rejected() {
    let settings = PasswordSettings { longest_wait: Duration::from_secs(600), ..cheap() };
    let passwords = Passwords::new(settings);
    let hash = passwords.hash(&password()).await.expect("not busy");
    let permits = [passwords.reserve(), passwords.reserve()].map(|slot| slot.expect("a slot").wait());
    let permits = futures::future::join_all(permits).await;

    let mut flood = JoinSet::new();
    for _ in 0..200 {
        let (passwords, hash) = (passwords.clone(), hash.clone());
        flood.spawn(async move { verify(&passwords, Some(&hash), TEXT).await });
    }
    // The permits are held, so only rejected tasks can end.
    for _ in 0..136 {
        let rejected = flood.join_next().await.expect("one more").expect("no panic");
        assert_eq!(rejected, Err(Busy { retry_after: Duration::from_secs(600) }));
    }
    assert_eq!(passwords.load(), HashLoad { running: 2, waiting: 64, most_running: 1 });

    drop(permits);
    while let Some(checked) = flood.join_next().await {
        assert_eq!(checked.expect("no panic"), Ok(PasswordMatch::Right { rehashed: None }));
    }
    let HashLoad { running, waiting, most_running } = passwords.load();
    assert_eq!((running, waiting), (0, 0));
    assert!(most_running <= 2, "{most_running}");
}

#[tokio::test]
async fn hash_memory_is_freed_when_the_queue_is_empty() {
    let passwords = Passwords::new(cheap());
    let hash = passwords.hash(&password()).await.expect("not busy");
    verify(&passwords, Some(&hash), TEXT).await.expect("not busy");
    assert_eq!(passwords.hasher.pool.idle(), 0);
}

#[tokio::test]
async fn a_cancelled_caller_keeps_its_slot_until_the_hash_is_done() {
    let passwords = Passwords::new(cheap());
    let (started, has_started) = tokio::sync::oneshot::channel();
    let (finish, may_finish) = mpsc::channel::<()>();
    let working = passwords.clone();
    let caller = tokio::spawn(async move {
        let work = working.run(working.reserve().expect("a slot"), move |_| {
            let _ = started.send(());
            may_finish.recv().ok()
        });
        work.await
    });
    has_started.await.expect("the job starts");
    caller.abort();
    assert!(caller.await.is_err());
    assert_eq!(passwords.load().running, 1);
    finish.send(()).expect("the job still runs");
}

#[tokio::test]
async fn a_failed_job_is_reported_as_busy() {
    let passwords = Passwords::new(cheap());
    assert_eq!(
        passwords.run(passwords.reserve().expect("a slot"), |_| None::<()>).await,
        Err(Busy { retry_after: Duration::from_secs(5) })
    );
    assert_eq!(passwords.load().running, 0);
}

/// `cargo test --release -- --ignored --nocapture --test-threads 1`, alone: the medians over 400 attempts each.
#[tokio::test]
#[ignore = "measures"]
async fn known_and_unknown_accounts_take_the_same_time() {
    let passwords = Passwords::new(PasswordSettings::default());
    let hash = passwords.hash(&password()).await.expect("not busy");
    let megabyte = "x".repeat(1 << 20);
    let cases = [
        ("wrong", Some(&hash), "copper-lantern-drizzlf"),
        ("unknown", None, "copper-lantern-drizzlf"),
        ("right", Some(&hash), TEXT),
        ("malformed", Some(&hash), "copper\0lantern"),
        ("a megabyte", None, &megabyte),
    ];
    let mut spans = vec![Vec::new(); cases.len()];
    for _ in 0..400 {
        for ((_, hash, text), spans) in cases.iter().zip(&mut spans) {
            let start = Instant::now();
            verify(&passwords, *hash, text).await.expect("not busy");
            spans.push(start.elapsed());
        }
    }
    let medians = spans.iter_mut().map(|spans| {
        spans.sort_unstable();
        spans[spans.len() / 2]
    });
    let medians: Vec<Duration> = medians.collect();
    for ((case, ..), median) in cases.iter().zip(&medians) {
        eprintln!("{case}: {median:?}");
        assert!(median.abs_diff(medians[0]) < medians[0] / 20, "{case}: {median:?} against {:?}", medians[0]);
    }
}

/// Read the peak memory from outside (`time -v`).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures"]
async fn a_flood_at_full_cost() {
    let passwords = Passwords::new(PasswordSettings::default());
    let start = Instant::now();
    let mut flood = JoinSet::new();
    for _ in 0..200 {
        let passwords = passwords.clone();
        flood.spawn(async move { verify(&passwords, None, TEXT).await });
    }
    let results = flood.join_all().await;
    let busy = results.iter().filter(|result| result.is_err()).count();
    eprintln!("{} done, {busy} busy, {:?}, {:?}", 200 - busy, start.elapsed(), passwords.load());
    assert!(passwords.load().most_running <= 2);
}

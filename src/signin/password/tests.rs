use std::sync::mpsc;
use std::time::Instant;

use tokio::task::JoinSet;

use super::*;

const TEXT: &str = "copper-lantern-drizzle";

fn password() -> NewPassword {
    NewPassword::check(TEXT, &[]).expect("a password")
}

/// Argon2 in no time at all.
fn tiny() -> PasswordSettings {
    PasswordSettings { cost: Cost::new(8, 1, 1).expect("a cost"), ..PasswordSettings::default() }
}

async fn verify(passwords: &Passwords, hash: Option<&PasswordHash>, text: &str) -> Result<Verdict, Busy> {
    passwords.verify(passwords.place()?, hash, text).await
}

#[tokio::test]
async fn a_password_is_right_for_its_own_hash_only() {
    let passwords = Passwords::new(tiny());
    let hash = passwords.hash(&password()).await.expect("not busy");
    let other = NewPassword::check("ventilator sandwich moth", &[]).expect("a password");
    let other = passwords.hash(&other).await.expect("not busy");
    let right = Verdict::Right { renewed: None };
    let table = [
        ("right", Some(&hash), TEXT, right.clone()),
        ("one letter less", Some(&hash), "copper-lantern-drizzl", Verdict::Wrong),
        ("one letter more", Some(&hash), "copper-lantern-drizzle ", Verdict::Wrong),
        ("another case", Some(&hash), "Copper-lantern-drizzle", Verdict::Wrong),
        ("nothing", Some(&hash), "", Verdict::Wrong),
        ("another's", Some(&other), TEXT, Verdict::Wrong),
        ("no such account", None, TEXT, Verdict::Wrong),
        ("no such account, nothing", None, "", Verdict::Wrong),
    ];
    for (case, hash, text, verdict) in table {
        assert_eq!(verify(&passwords, hash, text).await, Ok(verdict), "{case}");
    }
}

#[tokio::test]
async fn what_no_password_can_be_is_wrong_even_where_its_stand_in_would_fit() {
    let passwords = Passwords::new(tiny());
    // Cannot be set, but could be in a table: the hash of nothing.
    let empty = passwords.shared.make("").expect("a hash");
    assert_eq!(verify(&passwords, Some(&empty), "").await, Ok(Verdict::Right { renewed: None }));
    let megabyte = "x".repeat(1 << 20);
    for (case, text) in [("NUL", "\0"), ("NUL behind", "copper\0"), ("a megabyte", &megabyte), ("line end", "\n")] {
        assert_eq!(verify(&passwords, Some(&empty), text).await, Ok(Verdict::Wrong), "{case}");
        assert_eq!(verify(&passwords, None, text).await, Ok(Verdict::Wrong), "{case}");
    }
}

#[tokio::test]
async fn nothing_behind_the_72nd_byte_is_lost() {
    let passwords = Passwords::new(tiny());
    let long = format!("{TEXT}{}", "y".repeat(200));
    let hash = passwords.hash(&NewPassword::check(&long, &[]).expect("a password")).await.expect("not busy");
    assert_eq!(verify(&passwords, Some(&hash), &long[..long.len() - 1]).await, Ok(Verdict::Wrong));
    assert_eq!(verify(&passwords, Some(&hash), &long).await, Ok(Verdict::Right { renewed: None }));
}

#[tokio::test]
async fn composed_and_decomposed_letters_are_the_same_password() {
    let passwords = Passwords::new(tiny());
    let composed = NewPassword::check("café-zürich-crème", &[]).expect("a password");
    let hash = passwords.hash(&composed).await.expect("not busy");
    let decomposed = "cafe\u{301}-zu\u{308}rich-cre\u{300}me";
    assert_eq!(verify(&passwords, Some(&hash), decomposed).await, Ok(Verdict::Right { renewed: None }));
}

#[tokio::test]
async fn the_same_password_never_has_the_same_hash_twice() {
    let passwords = Passwords::new(tiny());
    let (one, other) = (passwords.hash(&password()).await, passwords.hash(&password()).await);
    assert_ne!(one, other);
}

#[tokio::test]
async fn a_hash_of_other_parameters_is_renewed_by_the_right_password_only() {
    let before = Passwords::new(tiny());
    let old = before.hash(&password()).await.expect("not busy");
    for (case, cost) in [("dearer", Cost::new(64, 2, 1)), ("cheaper", Cost::new(8, 2, 1))] {
        let today = Passwords::new(PasswordSettings { cost: cost.expect("a cost"), ..PasswordSettings::default() });
        assert_eq!(verify(&today, Some(&old), "wrong").await, Ok(Verdict::Wrong), "{case}");
        let verdict = verify(&today, Some(&old), TEXT).await;
        let Ok(Verdict::Right { renewed: Some(renewed) }) = verdict else { panic!("{case}: {verdict:?}") };
        assert_eq!(verify(&today, Some(&renewed), TEXT).await, Ok(Verdict::Right { renewed: None }), "{case}");
    }
}

#[tokio::test]
async fn by_default_hashes_are_at_owasp_s_parameters() {
    let hash = Passwords::new(PasswordSettings::default()).hash(&password()).await.expect("not busy");
    assert!(hash.phc().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
    assert_eq!(PasswordHash::parse(&hash.phc()), Ok(hash));
}

#[tokio::test]
async fn in_a_storm_a_few_run_some_wait_and_the_rest_is_told_to_come_back() {
    let settings = PasswordSettings { longest_wait: Duration::from_secs(600), ..tiny() };
    let passwords = Passwords::new(settings);
    let hash = passwords.hash(&password()).await.expect("not busy");
    let turns = [passwords.place(), passwords.place()].map(|place| place.expect("a place").turn());
    let turns = futures::future::join_all(turns).await;

    let mut storm = JoinSet::new();
    for _ in 0..200 {
        let (passwords, hash) = (passwords.clone(), hash.clone());
        storm.spawn(async move { verify(&passwords, Some(&hash), TEXT).await });
    }
    // The turns are held, so nothing can end but what is sent away.
    for _ in 0..136 {
        let told = storm.join_next().await.expect("one more").expect("no panic");
        assert_eq!(told, Err(Busy { retry_after: Duration::from_secs(600) }));
    }
    assert_eq!(passwords.load(), Load { running: 2, waiting: 64, most_running: 1 });

    drop(turns);
    while let Some(verdict) = storm.join_next().await {
        assert_eq!(verdict.expect("no panic"), Ok(Verdict::Right { renewed: None }));
    }
    let Load { running, waiting, most_running } = passwords.load();
    assert_eq!((running, waiting), (0, 0));
    assert!(most_running <= 2, "{most_running}");
}

#[tokio::test]
async fn the_memory_is_given_back_when_nobody_waits() {
    let passwords = Passwords::new(tiny());
    let hash = passwords.hash(&password()).await.expect("not busy");
    verify(&passwords, Some(&hash), TEXT).await.expect("not busy");
    assert_eq!(passwords.shared.pool.idle(), 0);
}

#[tokio::test]
async fn a_caller_who_goes_away_keeps_the_turn_until_the_work_is_done() {
    let passwords = Passwords::new(tiny());
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let working = passwords.clone();
    let caller = tokio::spawn(async move {
        let work = working.work(working.place().expect("a place"), move |_| {
            let _ = begun.send(());
            may_go_on.recv().ok()
        });
        work.await
    });
    has_begun.await.expect("it begins");
    caller.abort();
    assert!(caller.await.is_err());
    assert_eq!(passwords.load().running, 1);
    go_on.send(()).expect("it is still at work");
}

#[tokio::test]
async fn work_that_cannot_be_done_is_busy_and_nothing_else() {
    let passwords = Passwords::new(tiny());
    assert_eq!(
        passwords.work(passwords.place().expect("a place"), |_| None::<()>).await,
        Err(Busy { retry_after: Duration::from_secs(5) })
    );
    assert_eq!(passwords.load().running, 0);
}

/// `cargo test --release -- --ignored --nocapture --test-threads 1`, alone: the medians over 400 tries each.
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

/// Peak memory is read from outside (`time -v`).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures"]
async fn a_storm_at_full_cost() {
    let passwords = Passwords::new(PasswordSettings::default());
    let start = Instant::now();
    let mut storm = JoinSet::new();
    for _ in 0..200 {
        let passwords = passwords.clone();
        storm.spawn(async move { verify(&passwords, None, TEXT).await });
    }
    let outcomes = storm.join_all().await;
    let busy = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    eprintln!("{} done, {busy} busy, {:?}, {:?}", 200 - busy, start.elapsed(), passwords.load());
    assert!(passwords.load().most_running <= 2);
}

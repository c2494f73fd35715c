use super::*;

const ABOUT: &str = "otp:wwdemo/a2001";
const KEY: [u8; 32] = [7; 32];
const OLD: [u8; 32] = [6; 32];
const FOREIGN: [u8; 32] = [5; 32];

#[test]
fn what_is_closed_opens_again() {
    let vault = Vault::new(&KEY, &[]);
    let long = vec![0xA5; 100_000];
    let table: &[(&str, &[u8], &str)] = &[
        ("a device's secret", b"12345678901234567890", ABOUT),
        ("nothing", b"", ABOUT),
        ("about nothing", b"secret", ""),
        ("about something with dots", b"secret", "otp:a.b/c.d"),
        ("long", &long, ABOUT),
    ];
    for (case, plain, about) in table {
        let text = vault.encrypt(plain, about);
        assert_eq!(vault.decrypt(&text, about).as_deref(), Some(*plain), "{case}");
    }
}

#[test]
fn the_text_shows_nothing_and_is_never_the_same() {
    let vault = Vault::new(&KEY, &[]);
    let (first, second) =
        (vault.encrypt(b"12345678901234567890", ABOUT), vault.encrypt(b"12345678901234567890", ABOUT));
    assert_ne!(first, second);
    assert!(first.starts_with("v1."));
    assert!(first.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
}

#[test]
fn a_secret_opens_only_for_the_account_it_belongs_to() {
    let vault = Vault::new(&KEY, &[]);
    let text = vault.encrypt(b"secret", ABOUT);
    for other in ["otp:wwdemo/a2002", "otp:wwdemo/a200", "otp:wwdemo/a2001 ", "", "OTP:wwdemo/a2001"] {
        assert_eq!(vault.decrypt(&text, other), None, "{other}");
    }
}

#[test]
fn older_keys_open_and_no_longer_close() {
    let before = Vault::new(&OLD, &[]).encrypt(b"secret", ABOUT);
    let vault = Vault::new(&KEY, &[OLD]);
    assert_eq!(vault.decrypt(&before, ABOUT).as_deref(), Some(&b"secret"[..]));

    assert!(!before.starts_with(&vault.current_prefix()));

    let after = vault.encrypt(b"secret", ABOUT);
    assert!(after.starts_with(&vault.current_prefix()));
    assert_eq!(Vault::new(&KEY, &[]).decrypt(&after, ABOUT).as_deref(), Some(&b"secret"[..]), "without the older key");
    assert_eq!(Vault::new(&OLD, &[]).decrypt(&after, ABOUT), None, "with the older key alone");
}

#[test]
fn a_key_that_is_gone_opens_nothing() {
    let text = Vault::new(&KEY, &[]).encrypt(b"secret", ABOUT);
    let other = Vault::new(&FOREIGN, &[OLD]);
    assert_eq!(other.decrypt(&text, ABOUT), None);
}

#[test]
fn no_changed_letter_goes_unnoticed() {
    let vault = Vault::new(&KEY, &[OLD]);
    let text = vault.encrypt(b"secret", ABOUT);
    for at in 0..text.len() {
        for other in ["A", "B", ".", "="] {
            let mut changed = text.clone();
            changed.replace_range(at..=at, other);
            if changed != text {
                assert_eq!(vault.decrypt(&changed, ABOUT), None, "{other} at {at}");
            }
        }
        assert_eq!(vault.decrypt(&text[..at], ABOUT), None, "cut at {at}");
    }
}

#[test]
fn a_key_id_cannot_be_swapped() {
    let vault = Vault::new(&KEY, &[OLD]);
    let text = vault.encrypt(b"secret", ABOUT);
    let (own, other) = (&vault.current.id, &vault.older[0].id);
    assert_ne!(own, other);
    assert_eq!(vault.decrypt(&text.replace(own.as_str(), other), ABOUT), None);
}

#[test]
fn what_is_no_closed_text_opens_nothing() {
    let vault = Vault::new(&KEY, &[]);
    let id = vault.current.id.clone();
    let table = [
        ("nothing", String::new()),
        ("dots", "..".to_owned()),
        ("no body", format!("v1.{id}")),
        ("an empty body", format!("v1.{id}.")),
        ("less than a nonce", format!("v1.{id}.AAAA")),
        ("a nonce alone", format!("v1.{id}.AAAAAAAAAAAAAAAA")),
        ("another form", format!("v2.{id}.AAAAAAAAAAAAAAAA")),
        ("no base64", format!("v1.{id}.林林林")),
        ("plain text", "12345678901234567890".to_owned()),
    ];
    for (case, text) in table {
        assert_eq!(vault.decrypt(&text, ABOUT), None, "{case}");
    }
}

#[test]
fn the_keys_are_not_in_what_a_log_would_show() {
    let shown = format!("{:?}", Vault::new(&KEY, &[OLD]));
    assert!(!shown.contains("7, 7") && !shown.contains("6, 6"));
}

#[test]
fn a_mark_is_the_same_for_the_same_text_and_key_only() {
    let vault = Vault::new(&KEY, &[]);
    assert_eq!(vault.keyed_hash("hunter2"), Vault::new(&KEY, &[OLD]).keyed_hash("hunter2"));
    assert_ne!(vault.keyed_hash("hunter2"), vault.keyed_hash("hunter3"));
    assert_ne!(vault.keyed_hash("hunter2"), Vault::new(&OLD, &[]).keyed_hash("hunter2"));
    let id = vault.encrypt(b"", "").split('.').nth(1).map(str::to_owned).expect("a key id");
    assert!(!vault.keyed_hash("deskgate vault key id").starts_with(&id), "marks are made with a key of their own");
}

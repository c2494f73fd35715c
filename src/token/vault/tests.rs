use super::*;

const CONTEXT: &str = "otp:wwdemo/a2001";
const KEY: [u8; 32] = [7; 32];
const OLD: [u8; 32] = [6; 32];
const FOREIGN: [u8; 32] = [5; 32];

#[test]
fn an_encrypted_secret_decrypts() {
    let vault = Vault::new(&KEY, &[]);
    let long = vec![0xA5; 100_000];
    let table: &[(&str, &[u8], &str)] = &[
        ("a device's secret", b"12345678901234567890", CONTEXT),
        ("nothing", b"", CONTEXT),
        ("empty context", b"secret", ""),
        ("context with dots", b"secret", "otp:a.b/c.d"),
        ("long", &long, CONTEXT),
    ];
    for (case, plain, context) in table {
        let text = vault.encrypt(plain, context);
        assert_eq!(vault.decrypt(&text, context).as_deref(), Some(*plain), "{case}");
    }
}

#[test]
fn encrypting_twice_gives_different_ciphertexts() {
    let vault = Vault::new(&KEY, &[]);
    let (first, second) =
        (vault.encrypt(b"12345678901234567890", CONTEXT), vault.encrypt(b"12345678901234567890", CONTEXT));
    assert_ne!(first, second);
    assert!(first.starts_with("v1."));
    assert!(first.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
}

#[test]
fn a_secret_decrypts_only_in_its_own_context() {
    let vault = Vault::new(&KEY, &[]);
    let text = vault.encrypt(b"secret", CONTEXT);
    for other in ["otp:wwdemo/a2002", "otp:wwdemo/a200", "otp:wwdemo/a2001 ", "", "OTP:wwdemo/a2001"] {
        assert_eq!(vault.decrypt(&text, other), None, "{other}");
    }
}

#[test]
fn older_keys_decrypt_but_do_not_encrypt() {
    let before = Vault::new(&OLD, &[]).encrypt(b"secret", CONTEXT);
    let vault = Vault::new(&KEY, &[OLD]);
    assert_eq!(vault.decrypt(&before, CONTEXT).as_deref(), Some(&b"secret"[..]));

    assert!(!before.starts_with(&vault.current_prefix()));

    let after = vault.encrypt(b"secret", CONTEXT);
    assert!(after.starts_with(&vault.current_prefix()));
    assert_eq!(
        Vault::new(&KEY, &[]).decrypt(&after, CONTEXT).as_deref(),
        Some(&b"secret"[..]),
        "without the older key"
    );
    assert_eq!(Vault::new(&OLD, &[]).decrypt(&after, CONTEXT), None, "with the older key alone");
}

#[test]
fn a_secret_of_a_lost_key_does_not_decrypt() {
    let text = Vault::new(&KEY, &[]).encrypt(b"secret", CONTEXT);
    let other = Vault::new(&FOREIGN, &[OLD]);
    assert_eq!(other.decrypt(&text, CONTEXT), None);
}

#[test]
fn a_change_of_any_character_is_detected() {
    let vault = Vault::new(&KEY, &[OLD]);
    let text = vault.encrypt(b"secret", CONTEXT);
    for at in 0..text.len() {
        for other in ["A", "B", ".", "="] {
            let mut changed = text.clone();
            changed.replace_range(at..=at, other);
            if changed != text {
                assert_eq!(vault.decrypt(&changed, CONTEXT), None, "{other} at {at}");
            }
        }
        assert_eq!(vault.decrypt(&text[..at], CONTEXT), None, "cut at {at}");
    }
}

#[test]
fn the_key_id_is_authenticated() {
    let vault = Vault::new(&KEY, &[OLD]);
    let text = vault.encrypt(b"secret", CONTEXT);
    let (own, other) = (&vault.current.id, &vault.older[0].id);
    assert_ne!(own, other);
    assert_eq!(vault.decrypt(&text.replace(own.as_str(), other), CONTEXT), None);
}

#[test]
fn malformed_ciphertexts_do_not_decrypt() {
    let vault = Vault::new(&KEY, &[]);
    let id = vault.current.id.clone();
    let table = [
        ("nothing", String::new()),
        ("dots", "..".to_owned()),
        ("no body", format!("v1.{id}")),
        ("an empty body", format!("v1.{id}.")),
        ("less than a nonce", format!("v1.{id}.AAAA")),
        ("a nonce alone", format!("v1.{id}.AAAAAAAAAAAAAAAA")),
        ("another format", format!("v2.{id}.AAAAAAAAAAAAAAAA")),
        ("no base64", format!("v1.{id}.林林林")),
        ("plain text", "12345678901234567890".to_owned()),
    ];
    for (case, text) in table {
        assert_eq!(vault.decrypt(&text, CONTEXT), None, "{case}");
    }
}

#[test]
fn debug_output_shows_no_key() {
    let shown = format!("{:?}", Vault::new(&KEY, &[OLD]));
    assert!(!shown.contains("7, 7") && !shown.contains("6, 6"));
}

#[test]
fn a_keyed_hash_depends_on_text_and_key() {
    let vault = Vault::new(&KEY, &[]);
    assert_eq!(vault.keyed_hash("hunter2"), Vault::new(&KEY, &[OLD]).keyed_hash("hunter2"));
    assert_ne!(vault.keyed_hash("hunter2"), vault.keyed_hash("hunter3"));
    assert_ne!(vault.keyed_hash("hunter2"), Vault::new(&OLD, &[]).keyed_hash("hunter2"));
    let id = vault.encrypt(b"", "").split('.').nth(1).map(str::to_owned).expect("a key id");
    assert!(!vault.keyed_hash("deskgate vault key id").starts_with(&id), "hashes have a derived key");
}

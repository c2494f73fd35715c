use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// RFC 5869, appendices A.1 and A.2, of which a shorter output is a prefix.
#[test]
fn derivation_agrees_with_the_vectors_of_rfc_5869() {
    let first = hkdf(&(0..13).collect::<Vec<u8>>(), &[0x0b; 22], &(0xf0..0xfa).collect::<Vec<u8>>());
    assert_eq!(hex(&first), "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
    let second =
        hkdf(&(0x60..0xb0).collect::<Vec<u8>>(), &(0..0x50).collect::<Vec<u8>>(), &(0xb0..=0xff).collect::<Vec<u8>>());
    assert_eq!(hex(&second), "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c");
}

/// Computed with another implementation. Other values would sign everybody out and lose every one-time-password device.
#[test]
fn each_purpose_has_its_own_key_that_never_changes() {
    let secret = RootSecret::parse(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH\n").expect("a secret");
    for (purpose, key) in [
        (KeyPurpose::Cookies, "d6f60a0b2964a1487ce7534e4248ab45f131dd1d2a0b696c6ee2169518d4d7aa"),
        (KeyPurpose::OneTimePasswords, "05579cd6e3e528c3b2626d9986358fa7dee859bf7f85f9fe910f9e4405748de5"),
        (KeyPurpose::CallbackResults, "14dffc2c9ab6e88a093c71346c2afc1df2f4e60de6d5043d5532538bc4ca8838"),
        (KeyPurpose::SigningKeys, "24f34a9a811c465b0b75580399bbae75ec40c5a0b9b87407d277008316f4b903"),
    ] {
        assert_eq!(hex(&secret.derive(purpose)), key, "{purpose:?}");
    }
}

#[test]
fn weak_secrets_are_refused() {
    let base64 = b"q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=";
    let table: &[(&str, &[u8], Result<(), WeakSecret>)] = &[
        ("empty", b"", Err(WeakSecret::Empty)),
        ("whitespace", b" \r\n\n", Err(WeakSecret::Empty)),
        ("a password", b"correct horse battery staple", Err(WeakSecret::Short)),
        ("31 raw bytes", &(200..231).collect::<Vec<u8>>(), Err(WeakSecret::Short)),
        ("32 raw bytes", &(200..232).collect::<Vec<u8>>(), Ok(())),
        ("42 base64 digits", &base64[..42], Err(WeakSecret::Short)),
        ("43 base64 digits", &base64[..43], Ok(())),
        ("63 hexadecimal digits", &[b"0123456789abcdef".repeat(4).split_off(1)].concat(), Err(WeakSecret::Short)),
        ("64 hexadecimal digits", &b"0123456789abcdef".repeat(4), Ok(())),
        ("zeros", &[0; 64], Err(WeakSecret::Guessable)),
        ("a repeated word", &b"changeme".repeat(8), Err(WeakSecret::Guessable)),
    ];
    for (case, bytes, expected) in table {
        assert_eq!(RootSecret::parse(bytes).map(|_| ()), *expected, "{case}");
    }
    assert!(RootSecret::parse(RootSecret::generate().as_bytes()).is_ok(), "what `deskgate secret new` prints");
}

#[test]
fn a_line_end_makes_no_other_secret_and_debug_shows_none() {
    let text = RootSecret::generate();
    let plain = RootSecret::parse(text.as_bytes()).expect("a secret");
    assert_eq!(RootSecret::parse(format!("{text}\r\n").as_bytes()).as_ref(), Ok(&plain));
    assert!(!format!("{plain:?}").contains(&text[..8]));
    // Raw bytes may end with a byte that is a line end in a text.
    let mut raw: Vec<u8> = (200..231).collect();
    raw.push(b'\n');
    assert!(RootSecret::parse(&raw).is_ok());
}

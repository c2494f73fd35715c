use super::*;
use argon2::PasswordVerifier;

const SALT_TEXT: &str = "MDEyMzQ1Njc4OWFiY2RlZg";
const OUTPUT_TEXT: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY";

fn hash_of(cost: &Cost, text: &str) -> PasswordHash {
    let mut blocks = vec![Block::new(); cost.blocks()];
    let output = cost.derive(text.as_bytes(), b"0123456789abcdef", OUTPUT, &mut blocks).expect("a hash");
    PasswordHash::new(cost.clone(), *b"0123456789abcdef", [0; OUTPUT]).with_output(&output)
}

#[test]
fn a_new_hash_has_owasps_parameters_and_passes_an_independent_verifier() {
    let hash = hash_of(&Cost::owasp(), "correct horse battery staple");
    let text = hash.phc();
    assert!(text.starts_with(&format!("$argon2id$v=19$m=19456,t=2,p=1${SALT_TEXT}$")), "{text}");
    let phc = argon2::PasswordHash::new(&text).expect("a PHC string");
    let verifier = Argon2::default();
    assert!(verifier.verify_password(b"correct horse battery staple", &phc).is_ok());
    assert!(verifier.verify_password(b"correct horse battery stapl", &phc).is_err());
}

#[test]
fn the_output_is_that_of_the_reference_implementation() {
    // `printf password | argon2 somesalt -id -t 2 -k 256 -p 1` of phc-winner-argon2's test.c.
    let reference = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
    let hash = PasswordHash::parse(reference).expect("a hash");
    let mut blocks = vec![Block::new(); hash.cost().blocks()];
    let output = hash.cost().derive(b"password", hash.salt(), OUTPUT, &mut blocks).expect("a hash");
    assert_eq!(output, hash.output());
    let again = hash.cost().derive(b"password", hash.salt(), OUTPUT, &mut blocks).expect("a hash");
    assert_eq!(again, output, "the previous content of the memory must not matter");
}

#[test]
fn a_phc_string_round_trips() {
    for (case, cost) in [("owasp", Cost::owasp()), ("small", Cost::new(8, 1, 1).expect("a cost"))] {
        let hash = hash_of(&cost, "x");
        assert_eq!(PasswordHash::parse(&hash.phc()), Ok(hash), "{case}");
    }
}

#[test]
fn damaged_foreign_and_too_costly_hashes_are_rejected() {
    let good = format!("$argon2id$v=19$m=19456,t=2,p=1${SALT_TEXT}${OUTPUT_TEXT}");
    assert!(PasswordHash::parse(&good).is_ok());
    let with = |from: &str, to: &str| good.replacen(from, to, 1);
    let (damaged, unsupported, costly) = (HashFault::Damaged, HashFault::Unsupported, HashFault::TooCostly);
    let table = [
        ("nothing", String::new(), damaged),
        ("dollars", "$$$$$".to_owned(), damaged),
        ("no dollar", "password".to_owned(), damaged),
        ("a megabyte", "$argon2id".repeat(100_000), damaged),
        ("a truncated salt", with(SALT_TEXT, "MDE"), damaged),
        ("no salt", good[..33].to_owned(), damaged),
        ("no output", with(&format!("${OUTPUT_TEXT}"), ""), damaged),
        ("a truncated output", with(OUTPUT_TEXT, &OUTPUT_TEXT[..14]), damaged),
        ("a trailing field", format!("{good}$x"), damaged),
        ("a trailing space", format!("{good} "), damaged),
        ("no parameters", with("$m=19456,t=2,p=1", ""), damaged),
        ("a parameter missing", with(",t=2", ""), damaged),
        ("a parameter twice", with("t=2", "t=2,t=2"), damaged),
        ("an unknown parameter", with("t=2", "t=2,x=1"), damaged),
        ("another order", with("t=2,p=1", "p=1,t=2"), damaged),
        ("a leading zero", with("t=2", "t=02"), damaged),
        ("a negative", with("t=2", "t=-2"), damaged),
        ("no passes", with("t=2", "t=0"), damaged),
        ("no lanes", with("p=1", "p=0"), damaged),
        ("too little memory", with("m=19456", "m=7"), damaged),
        ("more than a number", with("m=19456", "m=99999999999"), damaged),
        ("not ASCII", with("argon2id", "аrgon2id"), damaged),
        ("argon2i", with("argon2id", "argon2i"), unsupported),
        ("argon2d", with("argon2id", "argon2d"), unsupported),
        ("version 1.0", with("v=19", "v=16"), unsupported),
        ("no version", with("$v=19", ""), unsupported),
        ("a key id", with("p=1", "p=1,keyid=AAAA"), unsupported),
        ("associated data", with("p=1", "p=1,data=AAAA"), unsupported),
        ("all memory", with("m=19456", "m=4294967295"), costly),
        ("a little over", with("m=19456", "m=65537"), costly),
        ("all time", with("t=2", "t=4294967295"), costly),
        ("many lanes", with("p=1", "p=5"), costly),
    ];
    for (case, text, fault) in table {
        assert_eq!(PasswordHash::parse(&text), Err(fault), "{case}");
    }
    for at in 0..good.len() {
        assert!(PasswordHash::parse(&good[..at]).is_err() || at > good.len() - 30, "cut at {at}");
    }
}

#[test]
fn a_cost_beyond_the_limits_is_rejected() {
    let table = [("memory", 65_537, 2, 1), ("passes", 19_456, 11, 1), ("lanes", 19_456, 2, 5), ("none", 0, 0, 0)];
    for (case, kib, passes, lanes) in table {
        assert_eq!(Cost::new(kib, passes, lanes), None, "{case}");
    }
    assert_eq!(Cost::new(19_456, 2, 1), Some(Cost::owasp()));
}

#[test]
fn a_hash_with_other_parameters_is_outdated() {
    let current = Cost::owasp();
    let ours = PasswordHash::new(current.clone(), [0; SALT], [0; OUTPUT]);
    let table = [
        ("current", ours.clone(), false),
        ("cheaper", PasswordHash { cost: Cost::new(12_288, 3, 1).expect("a cost"), ..ours.clone() }, true),
        ("more expensive", PasswordHash { cost: Cost::new(65_536, 3, 4).expect("a cost"), ..ours.clone() }, true),
        ("a short salt", PasswordHash { salt: vec![0; 8], ..ours.clone() }, true),
        ("a short output", PasswordHash { output: vec![0; 16], ..ours }, true),
    ];
    for (case, hash, outdated) in table {
        assert_eq!(hash.is_outdated(&current), outdated, "{case}");
    }
}

#[test]
fn debug_output_hides_the_hash() {
    let hash = PasswordHash::new(Cost::owasp(), [7; SALT], [9; OUTPUT]);
    assert_eq!(format!("{hash:?}"), "***");
}

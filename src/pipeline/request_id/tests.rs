use super::*;

#[test]
fn only_well_formed_request_ids_are_taken_over() {
    let table: &[(&str, bool)] = &[
        ("0123abcd", true),
        ("a-b_c.d-0123456789", true),
        ("short", false),
        ("with space in it", false),
        ("line\r\nfeed-xxxx", false),
        ("quote\"quote\"quote", false),
        (&"x".repeat(64), true),
        (&"x".repeat(65), false),
    ];
    for (text, expected) in table {
        assert_eq!(
            RequestId::parse(text.as_bytes()).map(|id| id.as_str() == *text),
            expected.then_some(true),
            "{text}"
        );
    }
}

#[test]
fn fresh_request_ids_differ() {
    assert_ne!(RequestId::fresh(), RequestId::fresh());
}

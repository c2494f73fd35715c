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

#[test]
fn fresh_request_ids_have_32_lower_hexadecimal_digits() {
    let id = RequestId::fresh();
    assert_eq!(id.as_str().len(), 32);
    assert!(id.as_str().bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id:?}");
    assert_eq!(&hexadecimal(0x0123_4567_89ab_cdef), b"0123456789abcdef");
}

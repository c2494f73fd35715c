use proptest::prelude::*;

use super::*;

fn validated(body: &str) -> Result<bool, InvalidChunk> {
    let mut chunks = ChunkValidator::new();
    chunks.validate(body.as_bytes()).map(|_| chunks.is_done())
}

#[test]
fn ambiguous_chunk_framing_is_invalid() {
    let table: &[(&str, &str, Result<bool, InvalidChunk>)] = &[
        ("plain", "5\r\nhello\r\n0\r\n\r\n", Ok(true)),
        ("two chunks", "1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n", Ok(true)),
        ("leading zeros", "0005\r\nhello\r\n000\r\n\r\n", Ok(true)),
        ("an extension", "5;a=b\r\nhello\r\n0;last\r\n\r\n", Ok(true)),
        ("trailers", "0\r\nA: b\r\nC:\r\n\r\n", Ok(true)),
        ("incomplete", "5\r\nhel", Ok(false)),
        ("0x", "0x5\r\nhello\r\n0\r\n\r\n", Err(InvalidChunk)),
        ("a sign", "+5\r\nhello\r\n0\r\n\r\n", Err(InvalidChunk)),
        ("a space before the extension", "5 ;a=b\r\nhello\r\n", Err(InvalidChunk)),
        ("a space after the size", "5 \r\nhello\r\n", Err(InvalidChunk)),
        ("a bare semicolon", "5;\r\nhello\r\n", Err(InvalidChunk)),
        ("several extensions", "5;a;b=c; d = \"e; \\\"f\"\r\nhello\r\n0\r\n\r\n", Ok(true)),
        ("an extension without a name", "5;=b\r\nhello\r\n", Err(InvalidChunk)),
        ("an extension without a value", "5;a=\r\nhello\r\n", Err(InvalidChunk)),
        ("an extension of two words", "5;a b\r\nhello\r\n", Err(InvalidChunk)),
        ("a name that is no token", "5;a/b=c\r\nhello\r\n", Err(InvalidChunk)),
        ("an open quote", "5;a=\"b\r\nhello\r\n", Err(InvalidChunk)),
        ("a word behind a quote", "5;a=\"b\"c\r\nhello\r\n", Err(InvalidChunk)),
        ("a blank behind an extension", "5;a \r\nhello\r\n", Err(InvalidChunk)),
        ("a blank between extensions", "5;a ;b\r\nhello\r\n", Err(InvalidChunk)),
        ("a semicolon behind an extension", "5;a;\r\nhello\r\n", Err(InvalidChunk)),
        ("no size", ";a\r\n", Err(InvalidChunk)),
        ("an empty size", "\r\n\r\n", Err(InvalidChunk)),
        ("a bare line feed", "5\nhello\r\n", Err(InvalidChunk)),
        ("a line feed in the extension", "5;a\nb\r\nhello\r\n", Err(InvalidChunk)),
        ("seventeen digits", "00000000000000005\r\n", Err(InvalidChunk)),
        ("data too long", "5\r\nhello!\r\n", Err(InvalidChunk)),
        ("data ends with a line feed", "5\r\nhello\n0\r\n\r\n", Err(InvalidChunk)),
        ("a trailer without colon", "0\r\nA b\r\n\r\n", Err(InvalidChunk)),
        ("a line feed ends it", "0\r\n\n", Err(InvalidChunk)),
    ];
    for (case, body, expected) in table {
        assert_eq!(validated(body), *expected, "{case}");
    }
}

#[test]
fn bytes_behind_the_body_do_not_belong_to_it() {
    let mut chunks = ChunkValidator::new();
    assert_eq!(chunks.validate(b"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n"), Ok(15));
    assert_eq!(chunks.validate(b"Host: a\r\n"), Ok(0));
}

#[test]
fn long_extensions_and_trailers_are_invalid() {
    assert_eq!(validated(&format!("5;{}\r\n", "a".repeat(MAX_EXTRA + 1))), Err(InvalidChunk));
    assert_eq!(validated(&format!("0\r\nA: {}\r\n", "a".repeat(MAX_EXTRA + 1))), Err(InvalidChunk));
}

proptest! {
    #[test]
    fn valid_bodies_pass_however_the_reads_are_cut(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..6),
        cut in 1_usize..50,
    ) {
        let mut body = Vec::new();
        for piece in &pieces {
            body.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            body.extend_from_slice(piece);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        let mut chunks = ChunkValidator::new();
        let mut data = Vec::new();
        for part in body.chunks(cut) {
            prop_assert_eq!(chunks.decode(part, |piece| data.extend_from_slice(piece)), Ok(part.len()));
        }
        prop_assert!(chunks.is_done());
        prop_assert_eq!(data, pieces.concat());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ChunkValidator::new().validate(&bytes);
    }
}

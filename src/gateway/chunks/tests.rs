use proptest::prelude::*;

use super::*;

fn judged(body: &str) -> Result<bool, BadChunk> {
    let mut chunks = Chunks::new();
    chunks.follow(body.as_bytes()).map(|()| chunks.place == Place::Done)
}

#[test]
fn chunked_bodies_are_read_in_one_way_only() {
    let table: &[(&str, &str, Result<bool, BadChunk>)] = &[
        ("plain", "5\r\nhello\r\n0\r\n\r\n", Ok(true)),
        ("two chunks", "1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n", Ok(true)),
        ("leading zeros", "0005\r\nhello\r\n000\r\n\r\n", Ok(true)),
        ("an extension", "5;a=b\r\nhello\r\n0;last\r\n\r\n", Ok(true)),
        ("trailers", "0\r\nA: b\r\nC:\r\n\r\n", Ok(true)),
        ("not yet over", "5\r\nhel", Ok(false)),
        ("0x", "0x5\r\nhello\r\n0\r\n\r\n", Err(BadChunk)),
        ("a sign", "+5\r\nhello\r\n0\r\n\r\n", Err(BadChunk)),
        ("a space before the extension", "5 ;a=b\r\nhello\r\n", Err(BadChunk)),
        ("a space behind the size", "5 \r\nhello\r\n", Err(BadChunk)),
        ("a bare semicolon", "5;\r\nhello\r\n", Err(BadChunk)),
        ("no size", ";a\r\n", Err(BadChunk)),
        ("an empty size", "\r\n\r\n", Err(BadChunk)),
        ("a line feed alone", "5\nhello\r\n", Err(BadChunk)),
        ("a line feed in the extension", "5;a\nb\r\nhello\r\n", Err(BadChunk)),
        ("seventeen digits", "00000000000000005\r\n", Err(BadChunk)),
        ("data too long", "5\r\nhello!\r\n", Err(BadChunk)),
        ("data ends with a line feed", "5\r\nhello\n0\r\n\r\n", Err(BadChunk)),
        ("a trailer without colon", "0\r\nA b\r\n\r\n", Err(BadChunk)),
        ("a line feed ends it", "0\r\n\n", Err(BadChunk)),
    ];
    for (case, body, expected) in table {
        assert_eq!(judged(body), *expected, "{case}");
    }
}

#[test]
fn endless_extensions_and_trailers_are_refused() {
    assert_eq!(judged(&format!("5;{}\r\n", "a".repeat(LONGEST_EXTRA + 1))), Err(BadChunk));
    assert_eq!(judged(&format!("0\r\nA: {}\r\n", "a".repeat(LONGEST_EXTRA + 1))), Err(BadChunk));
}

proptest! {
    #[test]
    fn well_formed_bodies_pass_however_they_are_cut(
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
        let mut chunks = Chunks::new();
        for part in body.chunks(cut) {
            prop_assert_eq!(chunks.follow(part), Ok(()));
        }
        prop_assert_eq!(chunks.place, Place::Done);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Chunks::new().follow(&bytes);
    }
}

use proptest::prelude::*;

use super::*;

#[test]
fn ambiguous_paths_are_refused_with_their_fault() {
    use PathFault::*;
    let table: &[(PathFault, &[&str])] = &[
        (NotAPath, &["", "*", "x"]),
        (EmptySegment, &["//", "//admin", "/a//b", "/a//"]),
        (CurrentSegment, &["/.", "/./a", "/a/.", "/a/./b"]),
        (ParentSegment, &["/..", "/a/..", "/a/../b"]),
        (EncodedDot, &["/%2e%2e/a", "/%2E/a", "/a/%2e"]),
        (EncodedSlash, &["/a%2fb", "/a%2Fb"]),
        (Backslash, &["/a%5cb", "/a\\b"]),
        (Nul, &["/%00", "/a%00", "/a\0b"]),
        (Control, &["/a\tb", "/a%0d%0ab", "/%7f"]),
        (Escape, &["/%", "/%4", "/%zz"]),
        (EncodedPercent, &["/%252e", "/%2525"]),
        (Semicolon, &["/a;b", "/..;/a"]),
        (Character, &["/a b", "/a\u{e9}", "/a#b", "/a\"b", "/a<b", "/a?b", "/{x}"]),
        (Utf8, &["/%ff", "/%c0%af"]),
    ];
    for (fault, paths) in table {
        for path in *paths {
            assert_eq!(canonical(path.as_bytes()), Err(*fault), "{path:?}");
        }
    }
}

#[test]
fn canonical_paths_are_borrowed_and_escaped_letters_are_decoded() {
    let table = [
        ("/", "/"),
        ("/api/conversations/7", "/api/conversations/7"),
        ("/h5/", "/h5/"),
        ("/a.b/..c/...", "/a.b/..c/..."),
        ("/a:b@c!$&'()*+,=", "/a:b@c!$&'()*+,="),
        ("/%61pi/auth", "/api/auth"),
        ("/%7Ealice", "/~alice"),
        ("/%e7%8e%8b", "/%E7%8E%8B"),
        ("/a%20b", "/a%20b"),
        ("/a%3bb", "/a%3Bb"),
    ];
    for (path, expected) in table {
        let found = canonical(path.as_bytes()).expect(path);
        assert_eq!(found, expected);
        assert_eq!(matches!(found, Cow::Borrowed(_)), path == expected, "{path}: copied only when changed");
    }
}

/// Decodes every escape once, as a lenient upstream does.
fn decode(path: &str) -> Vec<u8> {
    let bytes = path.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match escape(bytes.get(at + 1..at + 3)) {
            Ok(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

proptest! {
    #[test]
    fn a_canonical_path_is_its_own_canonical_form(path in "/[ -~]{0,40}") {
        if let Ok(found) = canonical(path.as_bytes()) {
            prop_assert_eq!(canonical(found.as_bytes()), Ok(Cow::Borrowed(&*found)));
        }
    }

    #[test]
    fn an_accepted_path_decodes_to_no_other_path(
        path in "(/(\\.|%2e|%2E|%5c|%2f|%25|;|\\\\|[a-b]|%61|%e7%8e%8b|%c3){0,3}){1,5}"
    ) {
        if let Ok(found) = canonical(path.as_bytes()) {
            let decoded = decode(&found);
            let text = String::from_utf8(decoded).expect("valid UTF-8");
            prop_assert_eq!(text.matches('/').count(), found.matches('/').count());
            prop_assert!(!text.contains("//") && !text.contains('\\') && !text.contains('%'));
            prop_assert!(!text.split('/').any(|segment| segment == "." || segment == ".."));
            prop_assert_eq!(decode(&path), text.into_bytes());
        }
    }

    #[test]
    fn no_input_makes_canonical_panic(path in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = canonical(&path);
    }
}

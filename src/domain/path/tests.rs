use proptest::prelude::*;

use super::*;

#[test]
fn paths_that_upstreams_could_read_differently_are_refused() {
    for path in [
        "",
        "*",
        "x",
        "//",
        "//admin",
        "/a//b",
        "/a//",
        "/.",
        "/..",
        "/./a",
        "/a/.",
        "/a/..",
        "/a/../b",
        "/a/./b",
        "/%2e%2e/a",
        "/%2E/a",
        "/a/%2e",
        "/a%2fb",
        "/a%2Fb",
        "/a%5cb",
        "/a\\b",
        "/%00",
        "/a%00",
        "/%",
        "/%4",
        "/%zz",
        "/%252e",
        "/%2525",
        "/a;b",
        "/..;/a",
        "/a b",
        "/a\tb",
        "/a\u{e9}",
        "/a#b",
        "/a\"b",
        "/a<b",
        "/a%0d%0ab",
        "/%ff",
        "/%c0%af",
        "/%7f",
        "/a?b",
        "/{x}",
    ] {
        assert_eq!(canonical(path.as_bytes()), Err(NotPlain), "{path:?}");
    }
}

#[test]
fn plain_paths_pass_without_a_copy_and_escaped_letters_are_undone() {
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

/// What a lenient upstream makes of a path: decodes everything once.
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
    fn no_upstream_finds_another_path_behind_an_accepted_one(
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
    fn no_input_makes_it_panic(path in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = canonical(&path);
    }
}

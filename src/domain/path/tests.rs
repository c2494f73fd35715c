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
        (EncodedDot, &["/%2e%2e/a", "/%2E/a", "/a/%2e", "/a/.%2e", "/a/%2e./b"]),
        (EncodedSlash, &["/a%2fb", "/a%2Fb"]),
        (Backslash, &["/a%5cb", "/a\\b"]),
        (Nul, &["/%00", "/a%00", "/a\0b"]),
        (Control, &["/a\tb", "/a%0d%0ab", "/%7f"]),
        (Escape, &["/%", "/%4", "/%zz"]),
        (EncodedPercent, &["/%252e", "/%2525"]),
        (Semicolon, &["/a;b", "/..;/a", "/a%3bb", "/a%3B", "/..%3b/a"]),
        (Blank, &["/%20", "/%20a", "/a%20", "/a/b%20/c", "/a%20%20", "/a%c2%a0", "/%e3%80%80a", "/a%ef%bb%bf"]),
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
        ("/v1/jobs%3Apurge", "/v1/jobs:purge"),
        ("/v1/jobs%3apurge", "/v1/jobs:purge"),
        ("/a%3Ab%40c%21%24%26%27%28%29%2A%2B%2C%3D", "/a:b@c!$&'()*+,="),
        ("/a%2Eb/%2e%2ec/a%2e", "/a.b/..c/a."),
        ("/a%3fb%5bc", "/a%3Fb%5Bc"),
    ];
    for (path, expected) in table {
        let found = canonical(path.as_bytes()).expect(path);
        assert_eq!(found, expected);
        assert_eq!(matches!(found, Cow::Borrowed(_)), path == expected, "{path}: copied only when changed");
    }
}

/// Spells a path: a byte that may stand bare is escaped if its choice says so, every other byte always is.
fn spell(path: &str, choices: &[u8]) -> String {
    let mut out = String::new();
    for (byte, choice) in path.bytes().zip(choices.iter().cycle()) {
        match (byte, choice) {
            (b'/', _) => out.push('/'),
            (byte, 0 | 1) if PATH_BYTES.contains(byte) => out.push(char::from(byte)),
            (byte, 2) => out.push_str(&format!("%{byte:02x}")),
            (byte, _) => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[test]
fn case_is_folded_as_lenient_services_do() {
    let table = [
        ("/admin/users", "/admin/users"),
        ("/Admin/USERS", "/admin/users"),
        ("/a%20B", "/a b"),
        ("/%C3%84rger", "/ärger"),
        ("/%C3%A4RGER", "/ärger"),
        ("/%D0%9F%D0%9B%D0%90%D0%9D", "/план"),
        ("/%C5%BFtatus", "/status"),
        ("/%E2%84%AAeys", "/keys"),
        ("/stra%C3%9Fe", "/straße"),
        ("/%E6%9E%97", "/林"),
    ];
    for (path, expected) in table {
        assert_eq!(fold_case(path), expected);
        assert_eq!(matches!(fold_case(path), Cow::Borrowed(_)), path == expected, "{path}: copied only when changed");
    }
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
            let text = decoded(&found).into_owned();
            prop_assert_eq!(text.matches('/').count(), found.matches('/').count());
            prop_assert!(!text.contains("//") && !text.contains('\\') && !text.contains('%'));
            prop_assert!(!text.split('/').any(|segment| segment == "." || segment == ".."));
            prop_assert_eq!(decoded(&path), text);
        }
    }

    #[test]
    fn every_spelling_of_a_path_has_the_same_canonical_form(
        path in "(/[ -~é林]{0,6}){1,4}",
        choices in proptest::collection::vec(0..4u8, 64),
    ) {
        let plain = spell(&path, &[0]);
        let other = spell(&path, &choices);
        prop_assert_eq!(canonical(plain.as_bytes()).ok(), canonical(other.as_bytes()).ok(), "{} and {}", plain, other);
    }

    #[test]
    fn no_input_makes_canonical_panic(path in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = canonical(&path);
    }
}

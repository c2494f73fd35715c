use super::*;

#[test]
fn an_absolute_target_must_name_the_same_host() {
    let split = |target: &'static str, host: &'static str| {
        split_target(target.as_bytes(), Some(host.as_bytes())).map(|split| (split.path.into_owned(), split.form)).ok()
    };
    assert_eq!(split("/a", "h"), Some(("/a".to_owned(), TargetForm::AsSent)));
    assert_eq!(split("http://h/a?b", "H"), Some(("/a".to_owned(), TargetForm::Rewritten)));
    assert_eq!(split("http://evil/a", "h"), None);
    assert_eq!(split("http://u@h/a", "h"), None);
    assert_eq!(split("ftp://h/a", "h"), None);
    assert_eq!(split("*", "h"), None);
}

#[test]
fn a_host_is_a_name_or_an_address_with_an_optional_port() {
    for host in ["desk", "desk.example:443", "127.0.0.1:80", "[::1]", "[::1]:8080", "Desk.Example.", "a_b"] {
        assert!(is_host(host.as_bytes()), "{host}");
    }
    for host in [
        "", ":80", "a:", "a:http", "a:-1", "a:+1", "a:0", "a:99999", "[::1", "::1", "a:80:90", "u@h", "a b", "[]",
        "[::1]x",
    ] {
        assert!(!is_host(host.as_bytes()), "{host}");
    }
}

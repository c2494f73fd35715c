use super::*;

#[test]
fn an_absolute_target_must_name_the_same_host() {
    let split = |target: &'static str, host: &'static str| {
        let host = RequestHost::parse(host.as_bytes()).expect("a host");
        split_target(target.as_bytes(), Some(&host)).map(|split| (split.path.into_owned(), split.form)).ok()
    };
    assert_eq!(split("/a", "h"), Some(("/a".to_owned(), TargetForm::AsSent)));
    assert_eq!(split("http://h/a?b", "H"), Some(("/a".to_owned(), TargetForm::Rewritten)));
    assert_eq!(split("http://evil/a", "h"), None);
    assert_eq!(split("http://u@h/a", "h"), None);
    assert_eq!(split("ftp://h/a", "h"), None);
    assert_eq!(split("*", "h"), None);
}

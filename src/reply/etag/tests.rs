use super::*;

#[test]
fn an_entity_tag_depends_on_the_body_only() {
    let tag = of(b"{}").expect("a tag");
    assert_eq!(Some(&tag), of(b"{}").as_ref());
    assert_ne!(Some(&tag), of(b"{ }").as_ref());
    let text = tag.to_str().expect("text");
    assert!(text.starts_with('"') && text.ends_with('"') && !text.contains(','), "strong and without a comma: {text}");
}

#[test]
fn if_none_match_is_read_in_every_valid_form() {
    let tag = HeaderValue::from_static("\"abc\"");
    let table: &[(&str, &[&str], bool)] = &[
        ("no header", &[], false),
        ("the same tag", &["\"abc\""], true),
        ("weakened by a cache", &["W/\"abc\""], true),
        ("one of several", &["\"x\", \"abc\" ,\"y\""], true),
        ("in a second line", &["\"x\"", "\"abc\""], true),
        ("any tag", &["*"], true),
        ("another tag", &["\"abd\""], false),
        ("tags with a comma", &["\"a,\", \"bc\""], false),
        ("without quotes", &["abc"], false),
        ("weak prefix in lower case", &["w/\"abc\""], false),
        ("a prefix of the tag", &["\"ab\""], false),
        ("empty", &[""], false),
    ];
    for (case, lines, expected) in table {
        let mut request = HeaderMap::new();
        for line in *lines {
            request.append(IF_NONE_MATCH, HeaderValue::from_static(line));
        }
        assert_eq!(matches(&tag, &request), *expected, "{case}");
    }
}

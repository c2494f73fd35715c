use super::*;

#[test]
fn a_tag_is_of_its_bytes_alone() {
    let tag = of(b"{}").expect("a tag");
    assert_eq!(Some(&tag), of(b"{}").as_ref());
    assert_ne!(Some(&tag), of(b"{ }").as_ref());
    let text = tag.to_str().expect("text");
    assert!(text.starts_with('"') && text.ends_with('"') && !text.contains(','), "strong, and in one piece: {text}");
}

#[test]
fn a_client_names_what_it_has_in_any_of_the_ways_it_may() {
    let tag = HeaderValue::from_static("\"abc\"");
    let table: &[(&str, &[&str], bool)] = &[
        ("nothing", &[], false),
        ("this one", &["\"abc\""], true),
        ("made weak on the way", &["W/\"abc\""], true),
        ("one of several", &["\"x\", \"abc\" ,\"y\""], true),
        ("in another line", &["\"x\"", "\"abc\""], true),
        ("anything", &["*"], true),
        ("another one", &["\"abd\""], false),
        ("one with a comma", &["\"a,\", \"bc\""], false),
        ("without quotes", &["abc"], false),
        ("weak in lower case", &["w/\"abc\""], false),
        ("a part", &["\"ab\""], false),
        ("empty", &[""], false),
    ];
    for (case, lines, expected) in table {
        let mut asked = HeaderMap::new();
        for line in *lines {
            asked.append(IF_NONE_MATCH, HeaderValue::from_static(line));
        }
        assert_eq!(is_named(&tag, &asked), *expected, "{case}");
    }
}

use super::Language::{self, Chinese, English};

#[test]
fn the_language_follows_the_weights_of_the_caller() {
    let table: &[(&str, Option<&str>, Language)] = &[
        ("nothing said", None, English),
        ("plain", Some("zh-CN"), Chinese),
        ("any Chinese", Some("zh-TW"), Chinese),
        ("first of equals", Some("zh, en"), Chinese),
        ("weights decide", Some("zh;q=0.3, en;q=0.9"), English),
        ("zero is a refusal", Some("zh;q=0"), English),
        ("unknown ones are passed over", Some("fr, zh;q=0.1"), Chinese),
        ("nonsense", Some(";;q=,,"), English),
    ];
    for (case, accept, expected) in table {
        assert_eq!(Language::negotiate(*accept, English), *expected, "{case}");
    }
}

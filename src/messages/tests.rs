use std::collections::{BTreeSet, HashSet};

use super::*;

fn tables() -> [(&'static str, &'static [Message]); 4] {
    [("errors", errors::ROWS), ("passwords", passwords::ROWS), ("results", results::ROWS), ("pages", PAGE_MESSAGES)]
}

fn rows() -> impl Iterator<Item = Message> {
    tables().into_iter().flat_map(|(_, rows)| rows.iter().copied())
}

fn is_chinese(letter: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&letter)
}

fn placeholders(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).map(|rest| rest.split_once('}').expect("a closed placeholder").0).collect()
}

#[test]
fn every_row_has_both_languages_and_the_same_placeholders() {
    // This row names the other language in that language.
    const SWAPPED: &str = "language_other";
    for row in rows().filter(|row| row.key() != SWAPPED) {
        let (english, chinese) = (row.text(Language::English), row.text(Language::Chinese));
        assert!(!english.trim().is_empty() && !english.chars().any(is_chinese), "{}: {english}", row.key());
        assert!(chinese.chars().any(is_chinese), "{}: {chinese}", row.key());
        assert_eq!(placeholders(english), placeholders(chinese), "{}", row.key());
    }
}

#[test]
fn keys_are_unique_and_no_table_repeats_a_text() {
    let mut keys = HashSet::new();
    for (table, rows) in tables() {
        let mut texts = HashSet::new();
        for row in rows {
            assert!(keys.insert(row.key()), "{}", row.key());
            assert!(texts.insert(row.text(Language::English)), "{table}: {}", row.key());
        }
    }
}

#[test]
fn errors_and_advice_are_sentences() {
    let fragments = ["OPERATION_", "PART_"];
    for row in errors::ROWS.iter().chain(passwords::ROWS) {
        if fragments.iter().any(|prefix| row.key().starts_with(prefix)) {
            continue;
        }
        let (english, chinese) = (row.text(Language::English), row.text(Language::Chinese));
        assert!(english.ends_with('.') && !english.contains(';'), "{}: {english}", row.key());
        assert!(chinese.ends_with('。'), "{}: {chinese}", row.key());
    }
}

#[test]
fn no_message_uses_words_that_the_vocabulary_rules_out() {
    let english = [
        "nobody",
        "somebody",
        "whoever",
        "anew",
        "no longer good",
        "just now",
        "let in",
        "go on",
        "put down",
        "told",
        "hears",
        "left alone",
        "is held",
        "not held",
        "lately",
        "messaging platform",
        "corporation",
        "please",
        " …",
    ];
    let chinese = ["你", "再试", "请您"];
    for row in rows() {
        let text = row.text(Language::English).to_lowercase();
        for word in english {
            assert!(!text.contains(word), "{}: {text:?} has {word:?}", row.key());
        }
        let text = row.text(Language::Chinese);
        for word in chinese {
            assert!(!text.contains(word), "{}: {text:?} has {word:?}", row.key());
        }
    }
}

#[test]
fn placeholders_are_filled_by_name_and_values_are_not_scanned() {
    let values = [("part", "{operation}"), ("operation", "a")];
    assert_eq!(Message::UNEXPECTED.fill(Language::English, &values), "a: {operation} error. Try again later.");
    assert_eq!(Message::UNEXPECTED.fill(Language::Chinese, &values), "a：{operation}故障，请稍后重试。");
    assert_eq!(Message::NOT_FOUND.fill(Language::English, &[]), Message::NOT_FOUND.text(Language::English));
}

#[test]
fn a_wait_is_rounded_up_and_has_its_plural_right() {
    let table: &[(u64, &str, &str)] = &[
        (0, "1 second", "1 秒"),
        (1_000, "1 second", "1 秒"),
        (1_001, "2 seconds", "2 秒"),
        (60_000, "60 seconds", "60 秒"),
        (120_000, "2 minutes", "2 分钟"),
        (120_001, "3 minutes", "3 分钟"),
    ];
    for (millis, english, chinese) in table {
        let time = Duration::from_millis(*millis);
        assert_eq!(wait(Language::English, time), *english, "{millis} ms");
        assert_eq!(wait(Language::Chinese, time), *chinese, "{millis} ms");
    }
}

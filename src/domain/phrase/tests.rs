use std::collections::HashSet;

use super::*;

fn is_chinese(letter: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&letter)
}

#[test]
fn every_phrase_is_there_in_both_languages_and_says_the_same() {
    let mut said = HashSet::new();
    for phrase in Message::ALL {
        let (english, chinese) = (phrase.text(Language::English), phrase.text(Language::Chinese));
        assert!(!english.trim().is_empty() && !english.chars().any(is_chinese), "{phrase:?}: {english}");
        // Some consist of what differs and a sign alone; the parts that they are made of are checked on their own.
        assert!(chinese.chars().any(is_chinese), "{phrase:?}: {chinese}");
        let gaps = |text: &str| text.matches("{}").count();
        assert_eq!(gaps(english), gaps(chinese), "{phrase:?}");
        assert!(said.insert(english), "{phrase:?}: {english} is said twice");
    }
}

#[test]
fn gaps_are_filled_in_their_order() {
    for (language, expected) in [(Language::English, "a: b failed"), (Language::Chinese, "a：b故障")] {
        assert_eq!(Message::Unexpected.with(language, &["a", "b"]), expected);
    }
    assert_eq!(Message::NotFound.with(Language::English, &[]), Message::NotFound.text(Language::English));
}

use super::*;
use crate::domain::language::Language;

const GOOD: &str = "copper-lantern-drizzle";
const HINTS: &[&str] = &["a2001", "Alice Chen", "wwdemo", "deskgate"];

fn fault(text: &str) -> Option<PasswordFault> {
    NewPassword::check(text, HINTS).err()
}

#[test]
fn a_password_has_8_to_256_characters_after_normalising() {
    let strong = |length: usize| -> String { "kQ~vX^jw&Zp_Hb-Yf=Ud;Nr?".chars().cycle().take(length).collect() };
    let table = [
        ("empty", String::new(), Some(PasswordFault::TooShort)),
        ("7", strong(7), Some(PasswordFault::TooShort)),
        ("12", strong(12), None),
        ("256", strong(256), None),
        ("257", strong(257), Some(PasswordFault::TooLong)),
        ("7 that were 14 before", "e\u{301}".repeat(7), Some(PasswordFault::TooShort)),
        ("257 of three bytes", "林".repeat(257), Some(PasswordFault::TooLong)),
        ("a megabyte", "x".repeat(1 << 20), Some(PasswordFault::TooLong)),
    ];
    for (case, text, expected) in table {
        assert_eq!(fault(&text), expected, "{case}");
    }
    // The longest forms that normalising shortens to 256: each of them is only weak.
    for (case, unit) in [("hangul", "\u{1112}\u{1161}\u{11AB}"), ("greek", "α\u{313}\u{300}\u{345}")] {
        let text = unit.repeat(256);
        assert_eq!(normalised(&text).map(|text| text.chars().count()), Ok(256), "{case}");
    }
}

#[test]
fn a_long_password_is_not_truncated() {
    let long = format!("{GOOD}{}", "林x".repeat(100));
    let password = NewPassword::check(&long, HINTS).expect("a password");
    assert_eq!(password.reveal(), long);
}

#[test]
fn passwords_are_normalised_to_nfc() {
    let composed = NewPassword::check("café-zürich-crème", HINTS).expect("a password");
    let decomposed = NewPassword::check("cafe\u{301}-zu\u{308}rich-cre\u{300}me", HINTS).expect("a password");
    assert_eq!(composed, decomposed);
    let compatible = NewPassword::check("ｃafé-zürich-crème", HINTS).expect("a password");
    assert_ne!(composed, compatible, "NFC keeps compatibility forms apart");
}

#[test]
fn only_control_characters_are_rejected() {
    let table = [
        ("NUL", '\0', true),
        ("tab", '\t', true),
        ("line break", '\n', true),
        ("escape", '\u{1B}', true),
        ("delete", '\u{7F}', true),
        ("C1", '\u{85}', true),
        ("space", ' ', false),
        ("wide space", '\u{3000}', false),
        ("emoji", '🦀', false),
        ("chinese", '林', false),
    ];
    for (case, character, refused) in table {
        for text in [format!("{GOOD}{character}"), format!("{character}{GOOD}"), format!("copper{character}{GOOD}")] {
            let expected = refused.then_some(PasswordFault::ControlCharacter);
            assert_eq!(fault(&text), expected, "{case}");
        }
    }
}

#[test]
fn a_weak_password_is_rejected_with_fitting_advice() {
    let table = [
        ("password", Advice::NoCommonPassword),
        ("password1", Advice::NoCommonPassword),
        ("P@ssw0rd", Advice::NoCommonPassword),
        ("drowssap", Advice::NoCommonPassword),
        ("qwertyuiop", Advice::NoCommonPassword),
        ("zxcvfdsaqwer", Advice::NoKeyboardPattern),
        ("aaaaaaaaaaaaaaaa", Advice::NoRepeats),
        ("bluebluebluebluebl", Advice::NoRepeats),
        ("abcdefghijk", Advice::NoSequence),
        ("13.05.1987", Advice::NoDates),
        ("partisanship", Advice::NoSingleWord),
        ("a2001chen", Advice::NothingAboutYou),
    ];
    for (text, advice) in table {
        assert_eq!(fault(text), Some(PasswordFault::TooWeak(advice)), "{text}");
    }
}

#[test]
fn a_strong_password_needs_no_symbols() {
    for text in
        [GOOD, "correct horse battery staple", "7Hq#vR2m!pZ", "蓝鲸在雨夜里弹琴喝茶", "ventilator sandwich moth"]
    {
        assert_eq!(fault(text), None, "{text}");
    }
}

#[test]
fn hints_do_not_count_as_strength() {
    let table = [
        ("the id", "a2001a2001", &["a2001"]),
        ("the name", "Zbigniewska9", &["Zbigniewska"]),
        ("a part of the name", "Zbigniewska9", &["Halina Zbigniewska"]),
        ("the name without its space", "halinazbigniewska", &["Halina Zbigniewska"]),
        ("the chinese name", "欧阳慕容雪王小明", &["欧阳慕容雪王小明"]),
        ("the product", "deskgate2026", &["deskgate"]),
    ];
    for (case, text, hints) in table {
        assert!(matches!(NewPassword::check(text, hints), Err(PasswordFault::TooWeak(_))), "{case}");
    }
    let about_you = Err(PasswordFault::TooWeak(Advice::NothingAboutYou));
    assert_eq!(NewPassword::check("halinazbigniewska", &["Halina Zbigniewska"]), about_you);
    assert!(NewPassword::check("halinazbigniewska", &[]).is_ok(), "another user may use it");
}

#[test]
fn hints_are_limited() {
    let long = "x".repeat(1 << 20);
    let many = vec![long.as_str(); 1_000];
    assert!(NewPassword::check(GOOD, &many).is_ok());
    let words = words_of(&many);
    assert!(words.len() <= 16 * 66 && words.iter().all(|word| word.chars().count() <= 64));
    assert!(words_of(&["", " ", "a", "ab", "--"]).is_empty(), "short words are dropped");
}

#[test]
fn zxcvbn_gets_a_limited_beginning_with_few_look_alikes() {
    let table = [
        ("short", "p4ssw0rd", "p4ssw0rd"),
        ("all look-alikes", "4@8({[<3691!|70$5+%2", "4@8({[~^&*_-=:;\",.?>"),
        ("the same kinds again", "4@8({[<4@8({[<", "4@8({[~4@8({[~"),
        ("long", &"林x".repeat(100), &"林x".repeat(16)),
    ];
    for (case, text, expected) in table {
        assert_eq!(text_for_zxcvbn(text), expected, "{case}");
    }
}

#[test]
fn no_text_makes_the_check_panic() {
    // Characters that change length when lowercased, combine, run right to left or match nothing.
    let odd: Vec<char> = "İıßẞŉǰΐΰﬃſKÅ\u{301}\u{345}\u{200D}\u{202E}\u{FEFF}\u{FFFF}🦀👨4@8({[<3691!|70$5+%2aA1.-/ 林ا"
        .chars()
        .collect();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits")
    };
    for _ in 0..150 {
        let kinds = 1 + next() % odd.len();
        let length = 8 + next() % 40;
        let text: String = (0..length).map(|_| odd[next() % kinds]).collect();
        let hint: String = text.chars().skip(next() % 4).take(5).collect();
        // It must only return.
        let _ = NewPassword::check(&text, &[&hint]);
    }
}

#[test]
fn every_fault_has_a_message_in_both_languages() {
    let plain = [PasswordFault::TooShort, PasswordFault::TooLong, PasswordFault::ControlCharacter];
    let faults: Vec<PasswordFault> = plain.into_iter().chain(Advice::ALL.map(PasswordFault::TooWeak)).collect();
    let mut seen = std::collections::HashSet::new();
    for fault in faults {
        let (english, chinese) = (fault.message().text(Language::English), fault.message().text(Language::Chinese));
        assert!(english.is_ascii() && english.contains("password"), "{english}");
        assert!(chinese.starts_with("密码"), "{chinese}");
        assert!(seen.insert(english) && seen.insert(chinese), "{english}: used twice");
    }
}

#[test]
fn debug_output_hides_a_new_password() {
    let password = NewPassword::check(GOOD, HINTS).expect("a password");
    assert!(!format!("{password:?}").contains("copper"));
}

/// `cargo test --release -- --ignored --nocapture worst`: the time of the slowest passwords.
#[test]
#[ignore = "measures"]
fn the_slowest_passwords_to_check() {
    let table = [
        ("usual", GOOD.to_owned()),
        ("random", "7Hq#vR2m!pZx9&Lw@4Tc(8Ns$1Bk%5Yd".to_owned()),
        ("all look-alikes", "4@8({[<3691!|70$5+%24@8({[<3691!|70$5+%2".to_owned()),
        ("costly look-alikes", "1|!7+$4@pasword1|!7+$4@pasword1|!7".to_owned()),
        ("repeats", "ab".repeat(128)),
        ("one letter", "a".repeat(256)),
        ("digits", "19871987198719871987198719871987".to_owned()),
    ];
    let _ = NewPassword::check(GOOD, HINTS);
    for (case, text) in table {
        let start = std::time::Instant::now();
        let result = NewPassword::check(&text, HINTS).map(drop);
        eprintln!("{case}: {:?} {result:?}", start.elapsed());
    }
    for length in [64, 100] {
        let text: String = "4@8({[<3691!|70$5+%2".chars().cycle().take(length).collect();
        let start = std::time::Instant::now();
        zxcvbn(&text, &[]);
        eprintln!("zxcvbn alone, all look-alikes, {length} characters: {:?}", start.elapsed());
    }
}

use super::*;

#[test]
fn all_spellings_of_a_name_fold_to_one() {
    let table = [
        ("as it is", "a2001", "a2001"),
        ("upper case", "A2001", "a2001"),
        ("full width", "ａ２００１", "a2001"),
        ("full width, upper case", "Ａ２００１", "a2001"),
        ("circled", "ⓐ2001", "a2001"),
        ("superscript", "a²001", "a2001"),
        ("mathematical", "𝐀𝟐𝟎𝟎𝟏", "a2001"),
        ("the Kelvin sign", "\u{212a}1", "k1"),
        ("decomposed", "cafe\u{301}", "caf\u{e9}"),
    ];
    for (case, typed, folded) in table {
        assert_eq!(EmployeeId::folded(typed), folded, "{case}");
        assert_eq!(EmployeeId::folded(folded), folded, "{case}, again");
    }
}

#[test]
fn what_is_too_long_is_cut_but_never_becomes_somebody() {
    let longest = "a".repeat(LONGEST);
    assert!(EmployeeId::is_well_formed(&EmployeeId::folded(&longest)));
    for (case, typed) in [("one more", "a".repeat(LONGEST + 1)), ("a megabyte", "Ａ".repeat(1 << 20))] {
        let folded = EmployeeId::folded(&typed);
        assert!(folded.len() > LONGEST && folded.len() < 100, "{case}");
        assert!(!EmployeeId::is_well_formed(&folded), "{case}");
    }
}

#[test]
fn nobody_is_no_corporation() {
    assert!(!CorpId::is_well_formed(CorpId::unknown().as_str()));
}

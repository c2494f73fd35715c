use proptest::prelude::*;

use super::*;

fn session(name: &str) -> Session {
    Session { name: name.to_owned(), ..Session::sample() }
}

fn value(lines: &IdentityLines, name: &str) -> String {
    let found = lines.lines().find(|(line, _)| line.as_str() == name);
    found.and_then(|(_, value)| value.to_str().ok().map(str::to_owned)).unwrap_or("(absent)".to_owned())
}

#[test]
fn a_display_name_with_line_ends_stays_one_line() {
    let lines = IdentityLines::of(&session("王\r\nX-Deskgate-Roles: admin 100%"));
    assert_eq!(value(&lines, "x-deskgate-name"), "%E7%8E%8B%0D%0AX-Deskgate-Roles:%20admin%20100%25");
    assert_eq!(value(&lines, "x-deskgate-roles"), "agent,user");
    let ends = lines.block().windows(2).filter(|pair| pair == b"\r\n").count();
    assert_eq!(ends, lines.lines().count());
}

#[test]
fn an_assertion_is_the_last_line_and_one_that_is_no_header_value_is_refused() {
    let session = Session::sample();
    let (alone, with) = (IdentityLines::of(&session), IdentityLines::with_assertion(&session, "a.b.c").expect("valid"));
    assert_eq!(value(&alone, "x-deskgate-assertion"), "(absent)");
    assert_eq!(alone.lines().count(), COUNT);
    assert_eq!(value(&with, "x-deskgate-assertion"), "a.b.c");
    assert_eq!(with.lines().count(), COUNT + 1);
    let expected = [&alone.block()[..], b"x-deskgate-assertion: a.b.c\r\n"].concat();
    assert_eq!(with.block(), &expected);
    assert!(IdentityLines::with_assertion(&session, "a.b.c\r\nx-deskgate-roles: admin").is_none());
}

#[test]
fn names_that_fold_onto_ours_are_recognised() {
    let table: &[(&str, bool)] = &[
        ("x-deskgate-roles", true),
        ("X-Deskgate-Roles", true),
        ("X_Deskgate_Roles", true),
        ("x.deskgate.roles", true),
        ("x-DESKGATE_employee.id", true),
        ("x-deskgate-", true),
        ("x-deskgate", true),
        ("x-deskgat", false),
        ("x-desk-gate-roles", false),
        ("deskgate-roles", false),
        ("", false),
    ];
    for (name, expected) in table {
        assert_eq!(is_look_alike(name.as_bytes()), *expected, "{name}");
    }
}

proptest! {
    #[test]
    fn no_display_name_can_break_out_of_its_line(name in any::<String>()) {
        let lines = IdentityLines::of(&session(&name));
        let sent = value(&lines, "x-deskgate-name");
        prop_assert!(sent.bytes().all(|byte| byte.is_ascii_graphic()));
    }

    #[test]
    fn every_spelling_of_our_names_is_recognised(
        tail in "[a-z]{0,12}", marks in proptest::collection::vec("[-_.]", 3), upper in any::<u32>()
    ) {
        let plain = format!("x{}deskgate{}{tail}{}", marks[0], marks[1], marks[2]);
        let spelled: String = plain.chars().enumerate()
            .map(|(i, c)| if upper >> (i % 32) & 1 == 1 { c.to_ascii_uppercase() } else { c })
            .collect();
        prop_assert!(is_look_alike(spelled.as_bytes()));
    }
}

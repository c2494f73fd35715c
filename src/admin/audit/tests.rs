use super::*;

#[test]
fn an_operators_record_holds_the_command_line() {
    let operator = Actor::Operator { uid: 1000 };
    let table = [
        (Action::GrantRole("agent"), "role grant agent"),
        (Action::TakeRole("agent"), "role take agent"),
        (Action::EndSessions, "session end --employee"),
        (Action::ResetOtp, "employee otp-remove"),
        (Action::Command("key rotate".into()), "key rotate"),
    ];
    for (action, detail) in table {
        let fields = RecordFields::new(operator, &action);
        let record = fields.record(None);
        assert_eq!((record.event, record.by, record.session_id), (Event::OperatorCommand, "uid 1000", ""), "{detail}");
        assert_eq!((record.corp_id, record.employee_id, record.detail), ("", "", detail));
    }
}

#[test]
fn arguments_that_are_not_names_are_masked() {
    let long = "a".repeat(65);
    for (argument, logged) in [
        ("security", "security"),
        ("eddsa-1800000000-x.1", "eddsa-1800000000-x.1"),
        ("two words", "(no name)"),
        ("a/b", "(no name)"),
        (long.as_str(), "(no name)"),
    ] {
        assert_eq!(loggable_name(argument), logged, "{argument}");
    }
}

use super::*;
use crate::domain::session::LoginMethod;

#[test]
fn first_factor_requires_a_recent_platform_sign_in() {
    let now = Timestamp::from_seconds(10_000);
    let five_minutes = Duration::from_secs(300);
    let table = [
        ("no platform sign-in", None, five_minutes, false),
        ("just now", Some(10_000), five_minutes, true),
        ("at the limit", Some(9_700), five_minutes, true),
        ("past the limit", Some(9_699), five_minutes, false),
        ("by a clock that runs ahead", Some(10_010), five_minutes, true),
        ("before the clock was set back", Some(10_301), five_minutes, false),
        ("operators only", Some(10_000), Duration::ZERO, false),
    ];
    for (case, at, within, expected) in table {
        let session = Session { platform_sign_in_at: at.map(Timestamp::from_seconds), ..Session::sample() };
        let checked = Enrolment { within }.check(&session, now);
        assert_eq!(checked.is_ok(), expected, "{case}");
    }
}

#[test]
fn records_of_older_versions_have_no_platform_sign_in() {
    let mut record = serde_json::to_value(Session::sample()).expect("JSON");
    record.as_object_mut().expect("an object").remove("platform_sign_in_at");
    let session: Session = serde_json::from_value(record).expect("a session");
    assert_eq!(session.platform_sign_in_at, None);
}

#[test]
fn password_and_bind_are_no_platform_sign_ins() {
    let platform: Vec<&str> =
        LoginMethod::ALL.into_iter().filter(|method| method.is_platform_sign_in()).map(LoginMethod::as_str).collect();
    assert_eq!(platform, ["oauth2", "qrcode", "dev"]);
}

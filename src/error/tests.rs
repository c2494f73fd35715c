use std::collections::BTreeSet;

use super::*;
use crate::domain::language::Language;
use crate::domain::rate::Window;
use crate::domain::role::RoleName;

const WAIT: Duration = Duration::from_secs(30);

fn rate_limited() -> Error {
    let window = Window { limit: 20, per: Duration::from_secs(60) };
    Error::RateLimited { retry_after: WAIT, exceeded: Exceeded { by: "address", window } }
}

/// One error of every variant, with its code and status as the contract has them.
fn contract() -> Vec<(Error, u16, u16)> {
    vec![
        (Error::NoCredentials, 1001, 401),
        (Error::InvalidToken(TokenFault::Revoked), 1001, 401),
        (Error::Forbidden(Forbidden::NoRole), 1003, 403),
        (Error::unexpected(Part::Store, "torn page"), 1005, 500),
        (Error::unexpected(Part::PlatformSetup, "bad secret"), 1005, 500),
        (Error::PasswordWrong, 1011, 401),
        (Error::PasswordNotSet, 1012, 403),
        (Error::OldPasswordMissing, 1015, 400),
        (Error::OldPasswordWrong, 1016, 400),
        (Error::StepUpRequired, 1021, 401),
        (Error::SignInTooOld { max_age: Duration::from_secs(300) }, 1021, 401),
        (Error::OtpWrong, 1022, 401),
        (Error::BadRequest(BadRequest::Path(PathFault::ParentSegment)), 1400, 400),
        (Error::BadRequest(BadRequest::Expectation), 1400, 417),
        (Error::BadRequest(BadRequest::Version), 1400, 505),
        (Error::NotFound, 1404, 404),
        (Error::NoSession, 1404, 404),
        (Error::MethodNotAllowed { allow: "GET".into() }, 1405, 405),
        (Error::RequestTimeout, 1408, 408),
        (Error::BodyTooLarge, 1413, 413),
        (Error::TargetTooLong, 1414, 414),
        (Error::UnsupportedMediaType, 1415, 415),
        (Error::UnknownHost, 1421, 421),
        (Error::WebSocketVersion, 1426, 426),
        (rate_limited(), 1429, 429),
        (Error::TooManySockets { retry_after: WAIT }, 1429, 429),
        (Error::TooManyStreams { retry_after: WAIT }, 1429, 429),
        (Error::Locked { retry_after: WAIT }, 1429, 429),
        (Error::HeadTooLarge, 1431, 431),
        (Error::UpstreamFailed(None), 1502, 502),
        (Error::Unavailable { part: Part::Store, cause: None }, 1503, 503),
        (Error::PlatformCircuitOpen { retry_after: WAIT }, 1503, 503),
        (Error::Overloaded { retry_after: WAIT }, 1503, 503),
        (Error::Saturated { retry_after: WAIT }, 1503, 503),
        (Error::UpstreamBusy { retry_after: WAIT }, 1503, 503),
        (Error::UpstreamTimeout, 1504, 504),
    ]
}

#[test]
fn codes_and_statuses_are_those_of_the_contract() {
    for (error, code, status) in contract() {
        assert_eq!(error.code().number(), code, "{error}");
        assert_eq!(error.status().as_u16(), status, "{error}");
    }
}

#[test]
fn every_code_is_raised_by_some_error() {
    let raised: BTreeSet<u16> = contract().iter().map(|(error, ..)| error.code().number()).collect();
    let all: BTreeSet<u16> = Code::ALL.iter().map(|code| code.number()).collect();
    assert_eq!(raised, all);
}

#[test]
fn code_all_lists_every_declared_code_in_ascending_order() {
    let value = |line: &str| line.trim().strip_suffix(',')?.split_once(" = ")?.1.parse().ok();
    let declared: Vec<u16> = include_str!("code.rs").lines().filter_map(value).collect();
    let listed: Vec<u16> = Code::ALL.iter().map(|code| code.number()).collect();
    assert_eq!(listed, declared);
    assert!(listed.is_sorted_by(|one, next| one < next), "{listed:?}");
}

#[test]
fn every_401_has_a_challenge() {
    for (error, _, status) in contract().into_iter().filter(|(_, _, status)| *status == 401) {
        let challenge = error.challenge().unwrap_or_else(|| panic!("RFC 9110, 15.5.2: {status} {error}"));
        assert!(challenge.as_bytes().starts_with(b"Bearer realm="), "{error}: {challenge:?}");
    }
}

#[test]
fn every_placeholder_of_a_message_is_filled() {
    let role = || RoleName::new("admin");
    let further = [
        Error::from(Forbidden::RoleNotHeld(role())),
        Forbidden::RoleRequired { active: RoleName::new("user"), wanted: vec![role(), RoleName::new("agent")] }.into(),
        Forbidden::NotGranted { active: role(), access: "tickets:read".into() }.into(),
        BadRequest::Repeated("Host").into(),
        BadRequest::Header("Host").into(),
        BadRequest::Body("line 1".into()).into(),
        BadRequest::Missing("ticket").into(),
        BadRequest::Parameter("wait").into(),
    ];
    let errors: Vec<Error> = contract().into_iter().map(|(error, ..)| error).chain(further).collect();
    for language in Language::ALL {
        for error in &errors {
            let message = error.message(language);
            let gap = ["{", "}", "()", "''", "“”", "  ", ": .", ": ,"].into_iter().find(|gap| message.contains(gap));
            assert_eq!(gap, None, "{error}: {message}");
        }
    }
}

#[test]
fn messages_name_what_the_client_needs() {
    let table: &[(Error, &str, &str)] = &[
        (
            Forbidden::RoleNotHeld(RoleName::new("admin")).into(),
            "You don't have the role 'admin'.",
            "您没有“admin”角色。",
        ),
        (
            Error::PlatformCircuitOpen { retry_after: WAIT },
            "WeCom isn't responding. Try again in 30 seconds.",
            "企业微信暂时没有响应，请 30 秒后重试。",
        ),
        (rate_limited(), "Too many requests. Try again in 30 seconds.", "请求过于频繁，请 30 秒后重试。"),
    ];
    for (error, english, chinese) in table {
        assert_eq!(error.message(Language::English), *english);
        assert_eq!(error.message(Language::Chinese), *chinese);
    }
}

#[test]
fn the_cause_of_a_failure_is_logged_and_not_sent_to_the_client() {
    let error = Error::unexpected(Part::Store, "SELECT secret FROM /var/lib").with_operation(Operation::Qrcode);
    let english = "Couldn't create the QR code: session store error. Try again later.";
    assert_eq!(error.message(Language::English), english);
    assert_eq!(error.message(Language::Chinese), "二维码生成失败：会话存储故障，请稍后重试。");
    assert_eq!(chain(&error), "unexpected failure of the store: SELECT secret FROM /var/lib");
}

#[test]
fn the_reason_of_a_bad_request_is_readable() {
    let error = Error::from(BadRequest::Repeated("Host"));
    assert_eq!(error.to_string(), "bad request: the header `Host` is repeated");
}

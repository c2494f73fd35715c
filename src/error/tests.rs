use super::*;
use crate::domain::language::Language;

#[test]
fn codes_and_statuses_are_those_of_the_contract() {
    let table: &[(Error, u16, u16)] = &[
        (Error::NoCredentials, 1001, 401),
        (Error::InvalidToken(TokenFault::Revoked), 1001, 401),
        (Error::Forbidden(Forbidden::NoRole), 1003, 403),
        (Error::unexpected(Part::Store, "torn page"), 1005, 500),
        (Error::BadRequest(BadRequest::Path(PathFault::ParentSegment)), 1400, 400),
        (Error::NotFound, 1404, 404),
        (Error::MethodNotAllowed { allow: "GET".into() }, 1405, 405),
        (Error::RequestTimeout, 1408, 408),
        (Error::BodyTooLarge, 1413, 413),
        (Error::TargetTooLong, 1414, 414),
        (Error::UnsupportedMediaType, 1415, 415),
        (Error::WebSocketVersion, 1426, 426),
        (Error::StepUpRequired, 1021, 401),
        (Error::RateLimited { retry_after: Duration::ZERO, exceeded: None }, 1429, 429),
        (Error::HeadTooLarge, 1431, 431),
        (Error::UpstreamFailed(None), 1502, 502),
        (Error::Unavailable { part: Part::Store, cause: None }, 1503, 503),
        (Error::UpstreamTimeout, 1504, 504),
    ];
    for (error, code, status) in table {
        assert_eq!(error.code().number(), *code, "{error}");
        assert_eq!(error.code().status().as_u16(), *status, "{error}");
    }
}

#[test]
fn every_401_has_a_challenge() {
    let refusals = [
        Error::NoCredentials,
        Error::InvalidToken(TokenFault::Expired),
        Error::StepUpRequired,
        Error::PasswordWrong,
        Error::OtpWrong,
    ];
    for error in refusals {
        assert_eq!(error.code().status().as_u16(), 401, "{error}");
        let challenge = error.challenge().unwrap_or_else(|| panic!("RFC 9110, 15.5.2: {error}"));
        assert!(challenge.as_bytes().starts_with(b"Bearer realm="), "{error}: {challenge:?}");
    }
}

#[test]
fn a_cause_never_reaches_the_caller() {
    let error = Error::unexpected(Part::Store, "SELECT secret FROM /var/lib").within(Operation::Qrcode);
    assert_eq!(error.message(Language::English), "QR code failed: store failed");
    assert_eq!(error.message(Language::Chinese), "二维码生成失败：会话存储故障");
}

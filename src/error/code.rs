//! The application's error codes: the contract with clients.

use http::StatusCode;

/// An error code. Its number and HTTP status never change; the message beside it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs)] // the names say it; the numbers 14xx and 15xx are HTTP statuses plus 1000
pub enum Code {
    Unauthenticated = 1001,
    Forbidden = 1003,
    Unexpected = 1005,
    PasswordWrong = 1011,
    PasswordNotSet = 1012,
    OldPasswordMissing = 1015,
    OldPasswordWrong = 1016,
    StepUpRequired = 1021,
    OtpWrong = 1022,
    BadRequest = 1400,
    NotFound = 1404,
    MethodNotAllowed = 1405,
    RequestTimeout = 1408,
    BodyTooLarge = 1413,
    TargetTooLong = 1414,
    UnsupportedMediaType = 1415,
    UnknownHost = 1421,
    WebSocketVersion = 1426,
    RateLimited = 1429,
    HeadTooLarge = 1431,
    UpstreamFailed = 1502,
    Unavailable = 1503,
    UpstreamTimeout = 1504,
}

impl Code {
    /// Every code, by number.
    pub const ALL: [Code; 23] = [
        Code::Unauthenticated,
        Code::Forbidden,
        Code::Unexpected,
        Code::PasswordWrong,
        Code::PasswordNotSet,
        Code::OldPasswordMissing,
        Code::OldPasswordWrong,
        Code::StepUpRequired,
        Code::OtpWrong,
        Code::BadRequest,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::BodyTooLarge,
        Code::TargetTooLong,
        Code::UnsupportedMediaType,
        Code::UnknownHost,
        Code::WebSocketVersion,
        Code::RateLimited,
        Code::HeadTooLarge,
        Code::UpstreamFailed,
        Code::Unavailable,
        Code::UpstreamTimeout,
    ];

    /// The number in the response's `code`.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The HTTP status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Code::Unauthenticated | Code::PasswordWrong | Code::StepUpRequired | Code::OtpWrong => {
                StatusCode::UNAUTHORIZED
            }
            Code::Forbidden | Code::PasswordNotSet => StatusCode::FORBIDDEN,
            Code::Unexpected => StatusCode::INTERNAL_SERVER_ERROR,
            Code::BadRequest | Code::OldPasswordMissing | Code::OldPasswordWrong => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Code::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::TargetTooLong => StatusCode::URI_TOO_LONG,
            Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Code::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Code::WebSocketVersion => StatusCode::UPGRADE_REQUIRED,
            Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Code::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Code::UpstreamFailed => StatusCode::BAD_GATEWAY,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

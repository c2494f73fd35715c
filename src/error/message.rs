//! The client-facing message of each error. Placeholders never carry a secret, an address or a cause.

use std::borrow::Cow;

use super::{Error, Part};
use crate::domain::language::Language;
use crate::messages::{self, Message};

impl Error {
    /// The response's `message`.
    pub fn message(&self, language: Language) -> Cow<'static, str> {
        let message = match self {
            Error::NoCredentials => Message::NO_CREDENTIALS,
            Error::InvalidToken(_) => Message::INVALID_TOKEN,
            Error::NotFound => Message::NOT_FOUND,
            Error::NoSession => Message::NO_SESSION,
            Error::MethodNotAllowed { .. } => Message::METHOD_NOT_ALLOWED,
            Error::RequestTimeout => Message::REQUEST_TIMEOUT,
            Error::BodyTooLarge => Message::BODY_TOO_LARGE,
            Error::TargetTooLong => Message::TARGET_TOO_LONG,
            Error::UnsupportedMediaType => Message::UNSUPPORTED_MEDIA_TYPE,
            Error::UnknownHost => Message::UNKNOWN_HOST,
            Error::WebSocketVersion => Message::WEBSOCKET_VERSION,
            Error::StepUpRequired => Message::STEP_UP_REQUIRED,
            Error::SignInTooOld { .. } => Message::SIGN_IN_TOO_OLD,
            Error::PasswordWrong => Message::PASSWORD_WRONG,
            Error::PasswordNotSet => Message::PASSWORD_NOT_SET,
            Error::OldPasswordMissing => Message::OLD_PASSWORD_MISSING,
            Error::OldPasswordWrong => Message::OLD_PASSWORD_WRONG,
            Error::OtpWrong => Message::OTP_WRONG,
            Error::TooManySockets { .. } => Message::TOO_MANY_SOCKETS,
            Error::TooManyStreams { .. } => Message::TOO_MANY_STREAMS,
            Error::HeadTooLarge => Message::HEAD_TOO_LARGE,
            Error::UpstreamFailed(_) => Message::UPSTREAM_FAILED,
            Error::UpstreamTimeout => Message::UPSTREAM_TIMEOUT,
            Error::Locked { .. } => return self.message_with_wait(Message::LOCKED, language),
            Error::RateLimited { .. } => return self.message_with_wait(Message::RATE_LIMITED, language),
            Error::Overloaded { .. } => return self.message_with_wait(Message::OVERLOADED, language),
            Error::UpstreamBusy { .. } => return self.message_with_wait(Message::SATURATED, language),
            Error::Saturated { .. } => return self.message_with_wait(Message::SATURATED, language),
            Error::PlatformCircuitOpen { .. } => {
                return self.message_with_wait(Message::PLATFORM_CIRCUIT_OPEN, language);
            }
            Error::Forbidden(reason) => return reason.message(language),
            Error::BadRequest(fault) => {
                return match fault.message() {
                    (message, None) => Cow::Borrowed(message.text(language)),
                    (message, Some(value)) => message.fill(language, &[value]).into(),
                };
            }
            Error::Unavailable { part, .. } => {
                let part = part.message().text(language);
                return Message::UNAVAILABLE.fill(language, &[("part", part)]).into();
            }
            Error::Unexpected { operation, part, .. } => {
                let message = match part {
                    Part::PlatformSetup => Message::PLATFORM_REFUSES,
                    _ => Message::UNEXPECTED,
                };
                let operation = operation.message().text(language);
                let part = part.message().text(language);
                return message.fill(language, &[("operation", operation), ("part", part)]).into();
            }
        };
        Cow::Borrowed(message.text(language))
    }

    fn message_with_wait(&self, message: Message, language: Language) -> Cow<'static, str> {
        let wait = messages::wait(language, self.retry_after().unwrap_or_default());
        message.fill(language, &[("wait", &wait)]).into()
    }
}

//! Which phrase each failure is told with, and what fills its gaps: never a secret, address or stack.

use std::borrow::Cow;

use super::{BadRequest, Error, Forbidden, Operation, Part};
use crate::domain::language::Language;
use crate::domain::phrase::Message;
use crate::domain::role::RoleName;

impl Error {
    /// The sentence for the answer's `message`.
    pub fn message(&self, language: Language) -> Cow<'static, str> {
        let phrase = match self {
            Error::NoCredentials => Message::NoCredentials,
            Error::InvalidToken(_) => Message::InvalidToken,
            Error::NotFound => Message::NotFound,
            Error::NoSession => Message::NoSession,
            Error::MethodNotAllowed { .. } => Message::MethodNotAllowed,
            Error::RequestTimeout => Message::RequestTimeout,
            Error::BodyTooLarge => Message::BodyTooLarge,
            Error::TargetTooLong => Message::TargetTooLong,
            Error::UnsupportedMediaType => Message::UnsupportedMediaType,
            Error::WebSocketVersion => Message::WebSocketVersion,
            Error::StepUpRequired => Message::StepUpRequired,
            Error::PasswordWrong => Message::PasswordWrong,
            Error::PasswordNotSet => Message::PasswordNotSet,
            Error::OldPasswordMissing => Message::OldPasswordMissing,
            Error::OldPasswordWrong => Message::OldPasswordWrong,
            Error::Overloaded { .. } => Message::Overloaded,
            Error::OtpWrong => Message::OtpWrong,
            Error::Locked { .. } => Message::Locked,
            Error::RateLimited { .. } => Message::RateLimited,
            Error::HeadTooLarge => Message::HeadTooLarge,
            Error::UpstreamFailed(_) => Message::UpstreamFailed,
            Error::UpstreamTimeout => Message::UpstreamTimeout,
            Error::PlatformCircuitOpen { .. } => Message::PlatformCircuitOpen,
            Error::Forbidden(reason) => return forbidden(reason, language),
            Error::BadRequest(fault) => return bad_request(fault, language),
            Error::Unavailable { part, .. } => {
                return Message::Unavailable.with(language, &[part_name(*part).text(language)]);
            }
            Error::Unexpected { doing, part: Part::PlatformSetup, .. } => {
                return Message::PlatformRefuses.with(language, &[doing_phrase(*doing).text(language)]);
            }
            Error::Unexpected { doing, part, .. } => {
                let words = [doing_phrase(*doing).text(language), part_name(*part).text(language)];
                return Message::Unexpected.with(language, &words);
            }
        };
        Cow::Borrowed(phrase.text(language))
    }
}

fn forbidden(reason: &Forbidden, language: Language) -> Cow<'static, str> {
    let phrase = match reason {
        Forbidden::RoleNotHeld(role) => return Message::RoleNotHeld.with(language, &[role.as_str()]),
        Forbidden::RoleRequired { wanted, .. } => {
            let names: Vec<&str> = wanted.iter().map(RoleName::as_str).collect();
            return Message::RoleRequired.with(language, &[&names.join(separator(language))]);
        }
        Forbidden::NotGranted { access, .. } => return Message::NotGranted.with(language, &[&access.to_string()]),
        Forbidden::EmployeeUnknown => Message::EmployeeUnknown,
        Forbidden::NoSuchEmployee => Message::NoSuchEmployee,
        Forbidden::NoRole => Message::NoRole,
        Forbidden::Disabled => Message::Disabled,
        Forbidden::Network(_) => Message::Network,
        Forbidden::Condition { .. } => Message::Condition,
        Forbidden::OtpBindingOnly => Message::OtpBindingOnly,
        Forbidden::NotVisible => Message::NotVisible,
        Forbidden::LastAdmin => Message::LastAdmin,
        Forbidden::TooManyRoles => Message::TooManyRoles,
        Forbidden::NotAnAgent => Message::NotAnAgent,
        Forbidden::OtpNotBound => Message::OtpNotBound,
        Forbidden::OtpNotOffered => Message::OtpNotOffered,
        Forbidden::OtpBound => Message::OtpBound,
        Forbidden::BindProof => Message::BindProof,
        Forbidden::Origin => Message::Origin,
        Forbidden::Development => Message::Development,
    };
    Cow::Borrowed(phrase.text(language))
}

/// Between the members of a list.
fn separator(language: Language) -> &'static str {
    match language {
        Language::English => ", ",
        Language::Chinese => "、",
    }
}

fn bad_request(fault: &BadRequest, language: Language) -> Cow<'static, str> {
    let phrase = match fault {
        BadRequest::Repeated(header) => return Message::Repeated.with(language, &[header]),
        BadRequest::Header(header) => return Message::Header.with(language, &[header]),
        BadRequest::Body(detail) => return Message::Body.with(language, &[detail]),
        BadRequest::Missing(parameter) => return Message::Missing.with(language, &[parameter]),
        BadRequest::Parameter(parameter) => return Message::Parameter.with(language, &[parameter]),
        BadRequest::NewPassword(phrase) => *phrase,
        BadRequest::Head => Message::Head,
        BadRequest::Path(_) => Message::Path,
        BadRequest::Framing => Message::Framing,
        BadRequest::Upgrade => Message::Upgrade,
        BadRequest::TwoTokens => Message::TwoTokens,
        BadRequest::RedirectUri => Message::RedirectUri,
        BadRequest::NotByAPage => Message::NotByAPage,
        BadRequest::SignInFailed => Message::SignInFailed,
        BadRequest::SignInDeclined => Message::SignInDeclined,
        BadRequest::SignInCode => Message::SignInCode,
        BadRequest::SignInFlow => Message::SignInFlow,
        BadRequest::TicketOver => Message::TicketOver,
    };
    Cow::Borrowed(phrase.text(language))
}

fn part_name(part: Part) -> Message {
    match part {
        Part::Store => Message::PartStore,
        Part::Directory => Message::PartDirectory,
        Part::Platform | Part::PlatformSetup => Message::PartPlatform,
        Part::Gateway => Message::PartGateway,
    }
}

fn doing_phrase(doing: Operation) -> Message {
    match doing {
        Operation::Request => Message::WhileRequest,
        Operation::Qrcode => Message::WhileQrcode,
        Operation::ScanStatus => Message::WhileScanStatus,
        Operation::AuthorizeUrl => Message::WhileAuthorizeUrl,
        Operation::Callback => Message::WhileCallback,
        Operation::Verify => Message::WhileVerify,
        Operation::Logout => Message::WhileLogout,
        Operation::SwitchRole => Message::WhileSwitchRole,
        Operation::Bind => Message::WhileBind,
        Operation::Sessions => Message::WhileSessions,
        Operation::Admin => Message::WhileAdmin,
        Operation::Agent => Message::WhileAgent,
        Operation::Otp => Message::WhileOtp,
    }
}

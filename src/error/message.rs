//! Which phrase each failure is told with, and what fills its gaps: never a secret, address or stack.

use std::borrow::Cow;

use super::{BadRequest, Doing, Error, Forbidden, Part};
use crate::domain::language::Language;
use crate::domain::phrase::Phrase;
use crate::domain::role::RoleName;

impl Error {
    /// The sentence for the answer's `message`.
    pub fn message(&self, language: Language) -> Cow<'static, str> {
        let phrase = match self {
            Error::NoCredentials => Phrase::NoCredentials,
            Error::InvalidToken(_) => Phrase::InvalidToken,
            Error::NotFound => Phrase::NotFound,
            Error::NoSession => Phrase::NoSession,
            Error::MethodNotAllowed { .. } => Phrase::MethodNotAllowed,
            Error::RequestTimeout => Phrase::RequestTimeout,
            Error::BodyTooLarge => Phrase::BodyTooLarge,
            Error::TargetTooLong => Phrase::TargetTooLong,
            Error::UnsupportedMediaType => Phrase::UnsupportedMediaType,
            Error::WebSocketVersion => Phrase::WebSocketVersion,
            Error::StepUpRequired => Phrase::StepUpRequired,
            Error::PasswordWrong => Phrase::PasswordWrong,
            Error::PasswordNotSet => Phrase::PasswordNotSet,
            Error::OldPasswordMissing => Phrase::OldPasswordMissing,
            Error::OldPasswordWrong => Phrase::OldPasswordWrong,
            Error::Overloaded { .. } => Phrase::Overloaded,
            Error::OtpWrong => Phrase::OtpWrong,
            Error::Locked { .. } => Phrase::Locked,
            Error::RateLimited { .. } => Phrase::RateLimited,
            Error::HeadTooLarge => Phrase::HeadTooLarge,
            Error::UpstreamFailed(_) => Phrase::UpstreamFailed,
            Error::UpstreamTimeout => Phrase::UpstreamTimeout,
            Error::PlatformResting { .. } => Phrase::PlatformResting,
            Error::Forbidden(reason) => return forbidden(reason, language),
            Error::BadRequest(fault) => return bad_request(fault, language),
            Error::Unavailable { part, .. } => {
                return Phrase::Unavailable.with(language, &[part_name(*part).text(language)]);
            }
            Error::Unexpected { doing, part: Part::PlatformSetup, .. } => {
                return Phrase::PlatformRefuses.with(language, &[doing_phrase(*doing).text(language)]);
            }
            Error::Unexpected { doing, part, .. } => {
                let words = [doing_phrase(*doing).text(language), part_name(*part).text(language)];
                return Phrase::Unexpected.with(language, &words);
            }
        };
        Cow::Borrowed(phrase.text(language))
    }
}

fn forbidden(reason: &Forbidden, language: Language) -> Cow<'static, str> {
    let phrase = match reason {
        Forbidden::RoleNotHeld(role) => return Phrase::RoleNotHeld.with(language, &[role.as_str()]),
        Forbidden::RoleRequired { wanted, .. } => {
            let names: Vec<&str> = wanted.iter().map(RoleName::as_str).collect();
            return Phrase::RoleRequired.with(language, &[&names.join(separator(language))]);
        }
        Forbidden::NotGranted { access, .. } => return Phrase::NotGranted.with(language, &[&access.to_string()]),
        Forbidden::EmployeeUnknown => Phrase::EmployeeUnknown,
        Forbidden::NoSuchEmployee => Phrase::NoSuchEmployee,
        Forbidden::NoRole => Phrase::NoRole,
        Forbidden::Disabled => Phrase::Disabled,
        Forbidden::Network(_) => Phrase::Network,
        Forbidden::Condition { .. } => Phrase::Condition,
        Forbidden::OtpBindingOnly => Phrase::OtpBindingOnly,
        Forbidden::NotVisible => Phrase::NotVisible,
        Forbidden::LastAdmin => Phrase::LastAdmin,
        Forbidden::TooManyRoles => Phrase::TooManyRoles,
        Forbidden::NotAnAgent => Phrase::NotAnAgent,
        Forbidden::OtpNotBound => Phrase::OtpNotBound,
        Forbidden::OtpNotOffered => Phrase::OtpNotOffered,
        Forbidden::OtpBound => Phrase::OtpBound,
        Forbidden::BindProof => Phrase::BindProof,
        Forbidden::Origin => Phrase::Origin,
        Forbidden::Development => Phrase::Development,
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
        BadRequest::Repeated(header) => return Phrase::Repeated.with(language, &[header]),
        BadRequest::Header(header) => return Phrase::Header.with(language, &[header]),
        BadRequest::Body(detail) => return Phrase::Body.with(language, &[detail]),
        BadRequest::Missing(parameter) => return Phrase::Missing.with(language, &[parameter]),
        BadRequest::Parameter(parameter) => return Phrase::Parameter.with(language, &[parameter]),
        BadRequest::NewPassword(phrase) => *phrase,
        BadRequest::Head => Phrase::Head,
        BadRequest::Path => Phrase::Path,
        BadRequest::Framing => Phrase::Framing,
        BadRequest::Upgrade => Phrase::Upgrade,
        BadRequest::TwoTokens => Phrase::TwoTokens,
        BadRequest::RedirectUri => Phrase::RedirectUri,
        BadRequest::NotByAPage => Phrase::NotByAPage,
        BadRequest::SignInFailed => Phrase::SignInFailed,
        BadRequest::SignInDeclined => Phrase::SignInDeclined,
        BadRequest::SignInCode => Phrase::SignInCode,
        BadRequest::SignInFlow => Phrase::SignInFlow,
        BadRequest::TicketOver => Phrase::TicketOver,
    };
    Cow::Borrowed(phrase.text(language))
}

fn part_name(part: Part) -> Phrase {
    match part {
        Part::Store => Phrase::PartStore,
        Part::Directory => Phrase::PartDirectory,
        Part::Platform | Part::PlatformSetup => Phrase::PartPlatform,
        Part::Gateway => Phrase::PartGateway,
    }
}

fn doing_phrase(doing: Doing) -> Phrase {
    match doing {
        Doing::Request => Phrase::WhileRequest,
        Doing::Qrcode => Phrase::WhileQrcode,
        Doing::ScanStatus => Phrase::WhileScanStatus,
        Doing::AuthorizeUrl => Phrase::WhileAuthorizeUrl,
        Doing::Callback => Phrase::WhileCallback,
        Doing::Verify => Phrase::WhileVerify,
        Doing::Logout => Phrase::WhileLogout,
        Doing::SwitchRole => Phrase::WhileSwitchRole,
        Doing::Bind => Phrase::WhileBind,
        Doing::Sessions => Phrase::WhileSessions,
        Doing::Admin => Phrase::WhileAdmin,
        Doing::Agent => Phrase::WhileAgent,
        Doing::Otp => Phrase::WhileOtp,
    }
}

//! `WWW-Authenticate`: the challenge of RFC 6750 that goes with a refusal.

use http::HeaderValue;

use super::{BadRequest, Error, Forbidden};

impl Error {
    /// The value of `WWW-Authenticate`, if this error has one. Every 401 does (RFC 9110, 15.5.2).
    pub fn challenge(&self) -> Option<HeaderValue> {
        match self {
            Error::SignInTooOld { max_age } => HeaderValue::from_str(&recent_sign_in(max_age.as_secs())).ok(),
            other => other.fixed_challenge().map(HeaderValue::from_static),
        }
    }

    fn fixed_challenge(&self) -> Option<&'static str> {
        Some(match self {
            // No token helps against a wrong password, but a 401 must name a scheme.
            Error::NoCredentials | Error::PasswordWrong => r#"Bearer realm="deskgate""#,
            Error::InvalidToken(_) => {
                r#"Bearer realm="deskgate", error="invalid_token", error_description="the token is invalid, expired or revoked""#
            }
            Error::BadRequest(BadRequest::TwoTokens | BadRequest::Repeated("Authorization")) => {
                r#"Bearer realm="deskgate", error="invalid_request""#
            }
            Error::StepUpRequired => {
                r#"Bearer realm="deskgate", error="insufficient_user_authentication", error_description="a fresh one-time password is needed", acr_values="otp""#
            }
            Error::OtpWrong => {
                r#"Bearer realm="deskgate", error="insufficient_user_authentication", error_description="the one-time password is wrong or was used already", acr_values="otp""#
            }
            Error::Forbidden(
                Forbidden::RoleRequired { .. }
                | Forbidden::NotGranted { .. }
                | Forbidden::RoleNotHeld(_)
                | Forbidden::OtpBindingOnly,
            ) => r#"Bearer realm="deskgate", error="insufficient_scope""#,
            _ => return None,
        })
    }
}

/// The challenge of RFC 9470 for a platform sign-in that is at most `max_age` seconds old.
fn recent_sign_in(max_age: u64) -> String {
    format!(
        r#"Bearer realm="deskgate", error="insufficient_user_authentication", error_description="a more recent sign-in is needed", max_age="{max_age}""#
    )
}

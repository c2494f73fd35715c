//! Who may enrol the first factor of an account, which is a one-time-password device or a local password.

use std::time::Duration;

use crate::domain::clock::Timestamp;
use crate::domain::session::Session;
use crate::error::{Error, Forbidden};

/// Requires a recent platform sign-in, so that a stolen token cannot give itself a factor. A sign-in through a link does not
/// count: a factor would outlive the link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Enrolment {
    /// `otp.enrol_within`
    pub(super) within: Duration,
}

impl Enrolment {
    /// Refuses a session whose platform sign-in is too old, or that began without one.
    pub(super) fn check(self, session: &Session, now: Timestamp) -> Result<(), Error> {
        if session.platform_account.is_some() {
            return Err(Forbidden::LinkedSession.into());
        }
        let is_recent = |at: Timestamp| {
            // A clock that was set back must not extend the time.
            at.until(now) <= self.within && now.until(at) <= self.within
        };
        match session.platform_sign_in_at {
            Some(at) if !self.within.is_zero() && is_recent(at) => Ok(()),
            _ => Err(Error::SignInTooOld { max_age: self.within }),
        }
    }
}

#[cfg(test)]
mod tests;

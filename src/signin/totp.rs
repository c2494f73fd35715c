//! Codes of authenticator apps: RFC 6238 with SHA-1, six digits and 30 seconds, the one combination that every app
//! supports.
//!
//! Built on the HMAC of aws-lc, which is a dependency anyway. The totp-rs crate would bring a second HMAC and SHA-1, stops
//! at the first match and returns the older of two; the tests compare with it instead. The caller makes sure that a code
//! works once: only the directory knows, for all gateways, which [`Step`] was used last.

use std::fmt;

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;
use crate::domain::secret::{Secret, constant_time_eq, random_bytes};

/// How long a code is valid, in seconds.
const PERIOD: i64 = 30;

/// Steps of clock drift accepted either way: clocks of phones differ, and users type slowly.
const DRIFT: i64 = 1;

/// All but the unreserved characters of RFC 3986.
const LABEL: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The secret that device and gateway share: 160 bits, the length that RFC 4226 recommends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtpSecret(Secret<[u8; 20]>);

impl OtpSecret {
    /// A new random secret.
    pub fn random() -> Self {
        Self(Secret::new(random_bytes()))
    }

    /// From its bytes; `None` unless they are 20.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(Secret::new(bytes)))
    }

    /// The bytes, for encryption.
    pub fn bytes(&self) -> &[u8] {
        self.0.reveal()
    }

    /// In base32 without padding, for users who type it into their app. Some apps reject padding, and 20 bytes need none.
    pub fn base32(&self) -> Secret<String> {
        Secret::new(BASE32_NOPAD.encode(self.bytes()))
    }

    /// The `otpauth:` URL for the QR code. The app shows `issuer` and `account`; a colon in them becomes a full stop,
    /// because apps split the two at the first colon, encoded or not.
    pub fn url(&self, issuer: &str, account: &str) -> Secret<String> {
        let (issuer, account) = (label(issuer), label(account));
        let secret = BASE32_NOPAD.encode(self.bytes());
        // These parameters are every app's defaults, but some apps require them.
        Secret::new(format!(
            "otpauth://totp/{issuer}:{account}?secret={secret}&issuer={issuer}&algorithm=SHA1&digits=6&period={PERIOD}"
        ))
    }

    /// The time step of a correct code: the current one, the one before or the one after. The caller must accept only a
    /// step newer than the last one used, and store it atomically.
    pub fn check(&self, code: &TotpCode, now: Timestamp) -> Option<Step> {
        let Step(current) = Step::at(now);
        let mut matched = None;
        // All steps are computed and compared, for constant time. Of two steps with the same code the newer one is
        // returned: the older may have been used.
        for step in (current - DRIFT..=current + DRIFT).filter(|step| *step >= 0).map(Step) {
            if constant_time_eq(&self.code(step).0, &code.0) {
                matched = Some(step);
            }
        }
        matched
    }

    /// The code of a time step, as the device shows it.
    pub fn code(&self, step: Step) -> TotpCode {
        let mut rest = self.number(step);
        let mut digits = [b'0'; 6];
        for digit in digits.iter_mut().rev() {
            // A remainder of ten fits into a byte.
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        TotpCode(digits)
    }

    /// RFC 4226, section 5.3: the 31 bits at the offset in the last half byte of the HMAC.
    fn number(&self, step: Step) -> u32 {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, self.bytes());
        let tag = hmac::sign(&key, &step.0.to_be_bytes());
        let tag = tag.as_ref();
        let at = usize::from(tag.last().copied().unwrap_or(0) & 0x0F);
        let four = tag.iter().skip(at).take(4);
        four.fold(0, |number, byte| number << 8 | u32::from(*byte)) & 0x7FFF_FFFF
    }
}

/// A code: six digits.
#[derive(Clone, PartialEq, Eq)]
pub struct TotpCode([u8; 6]);

impl TotpCode {
    /// Exactly six ASCII digits; else `None`. Digits of other scripts are rejected: no app shows them, and each accepted
    /// form would be another spelling of the same code.
    pub fn read(text: &str) -> Option<Self> {
        let digits: [u8; 6] = text.as_bytes().try_into().ok()?;
        digits.iter().all(u8::is_ascii_digit).then_some(Self(digits))
    }

    /// As text, for a simulated device.
    pub fn text(&self) -> String {
        self.0.iter().copied().map(char::from).collect()
    }
}

impl fmt::Debug for TotpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The number of a 30-second time step since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(i64);

impl Step {
    /// The time step of a moment.
    pub fn at(now: Timestamp) -> Self {
        Self(now.seconds().max(0) / PERIOD)
    }

    /// From the number of [`Step::number`].
    pub fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// The number, for the directory.
    pub fn number(self) -> i64 {
        self.0
    }
}

/// A label of the URL. A space becomes `%20`, because apps show a `+` as it is.
fn label(text: &str) -> String {
    utf8_percent_encode(&text.replace(':', "."), LABEL).to_string()
}

#[cfg(test)]
mod tests;

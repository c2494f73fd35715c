//! One-time passwords of authenticator apps: RFC 6238 with SHA-1, six digits and 30 seconds, the one combination
//! that every app takes.
//!
//! Written over the HMAC that is here anyway. The totp-rs crate would do, but it brings a second HMAC and SHA-1, stops
//! at the first match, and returns the oldest of two; it reads along in the tests instead. That a code works once
//! is the caller's: only the store knows, over all gateways, which [`Step`] was used last.

use std::fmt::{self, Write};

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

use crate::domain::clock::Timestamp;
use crate::domain::secret::{Secret, constant_time_eq, random_bytes};

/// How long a code is shown.
const PERIOD: i64 = 30;

/// Steps of drift that are forgiven either way: clocks of phones differ, and people type slowly.
const DRIFT: i64 = 1;

/// What the device and we share: 160 bits, the length that RFC 4226 recommends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtpSecret(Secret<[u8; 20]>);

impl OtpSecret {
    /// A new one.
    pub fn random() -> Self {
        Self(Secret::new(random_bytes()))
    }

    /// From its bytes, as the vault gives them back; `None` if they are not 20.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(Secret::new(bytes)))
    }

    /// Its bytes, for the vault.
    pub fn bytes(&self) -> &[u8] {
        self.0.reveal()
    }

    /// In base32, for people who type it into their app instead of scanning.
    pub fn base32(&self) -> Secret<String> {
        Secret::new(base32(self.bytes()))
    }

    /// What the QR code says. `issuer` and `account` are what the app shows; a colon in them becomes a full stop,
    /// because apps take the first colon, encoded or not, as the border between the two.
    pub fn url(&self, issuer: &str, account: &str) -> Secret<String> {
        let (issuer, account) = (label(issuer), label(account));
        let secret = base32(self.bytes());
        // Every app has these numbers as its default; they are said for those that ask.
        Secret::new(format!(
            "otpauth://totp/{issuer}:{account}?secret={secret}&issuer={issuer}&algorithm=SHA1&digits=6&period={PERIOD}"
        ))
    }

    /// The step whose code this is: the one of `now`, the one before or the one after. The caller refuses it unless
    /// it is newer than the last one used, and remembers it in the same breath.
    pub fn check(&self, code: &Code, now: Timestamp) -> Option<Step> {
        let Step(current) = Step::at(now);
        let mut matched = None;
        // All are computed and compared whatever the outcome. Of two steps with the same code the newer counts:
        // the older one may have been used.
        for step in (current - DRIFT..=current + DRIFT).filter(|step| *step >= 0).map(Step) {
            if constant_time_eq(&self.code(step).0, &code.0) {
                matched = Some(step);
            }
        }
        matched
    }

    /// The code of a step, as the device shows it.
    pub fn code(&self, step: Step) -> Code {
        let mut rest = self.number(step);
        let mut digits = [b'0'; 6];
        for digit in digits.iter_mut().rev() {
            // A remainder of ten fits.
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Code(digits)
    }

    /// RFC 4226, section 5.3: the 31 bits that the last half byte of the HMAC points to.
    fn number(&self, step: Step) -> u32 {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, self.bytes());
        let tag = hmac::sign(&key, &step.0.to_be_bytes());
        let tag = tag.as_ref();
        let at = usize::from(tag.last().copied().unwrap_or(0) & 0x0F);
        let four = tag.iter().skip(at).take(4);
        four.fold(0, |number, byte| number << 8 | u32::from(*byte)) & 0x7FFF_FFFF
    }
}

/// A code as typed: six digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Code([u8; 6]);

impl Code {
    /// Exactly six ASCII digits, nothing around them; else `None`. Digits of other scripts are refused rather than
    /// translated: no app shows them, and each form more is a way more to write the same code.
    pub fn read(text: &str) -> Option<Self> {
        let digits: [u8; 6] = text.as_bytes().try_into().ok()?;
        digits.iter().all(u8::is_ascii_digit).then_some(Self(digits))
    }

    /// As text, for a simulated device.
    pub fn text(&self) -> String {
        self.0.iter().copied().map(char::from).collect()
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A span of 30 seconds since 1970, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Step(i64);

impl Step {
    /// The one that this moment lies in.
    pub fn at(now: Timestamp) -> Self {
        Self(now.seconds().max(0) / PERIOD)
    }

    /// From its number, as [`Step::number`] gave it.
    pub fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Its number, for a store that compares numbers.
    pub fn number(self) -> i64 {
        self.0
    }
}

/// RFC 4648, section 6. No padding: some apps refuse it, and 20 bytes need none.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            // Five bits: below 32.
            text.push(char::from(LETTERS[(held >> bits & 31) as usize]));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(LETTERS[(held << (5 - bits) & 31) as usize]));
    }
    text
}

/// Percent-encoded, all but RFC 3986's unreserved letters. A space is `%20`: apps show a `+` as it is.
fn label(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.replace(':', ".").bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests;

//! Reads `--set SECTION.KEY=VALUE`. The argument parser's own message would quote a malformed one, which may have a secret.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

use crate::config::Override;

/// Parses an override, and says what is wrong without its value.
#[derive(Clone)]
pub(super) struct OverrideParser;

impl TypedValueParser for OverrideParser {
    type Value = Override;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<Override, Error> {
        let text = value.to_str().ok_or_else(|| Error::new(ErrorKind::InvalidUtf8).with_cmd(command))?;
        let malformed =
            |why: String| Error::raw(ErrorKind::ValueValidation, format!("--set: {why}\n")).with_cmd(command);
        text.parse().map_err(malformed)
    }
}

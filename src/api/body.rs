//! Parses request bodies: JSON into a typed body, and HTML forms.

use serde::de::DeserializeOwned;

use super::request::ApiRequest;
use crate::error::{BadRequest, Error};

mod document;

/// Most form fields that are read.
const MAX_FIELDS: usize = 16;

/// Parses JSON. The error names members and positions, never values: a body may hold a token. Unknown members are allowed,
/// but the whole document must be unambiguous to any parser.
pub fn json<T: DeserializeOwned>(body: &[u8], request: &ApiRequest) -> Result<T, Error> {
    if request.content_type.as_deref() != Some("application/json") || request.encoded {
        return Err(Error::UnsupportedMediaType);
    }
    // Serde would also read a struct from an array of its members' values.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(BadRequest::Body("an object is expected".to_owned()).into());
    }
    let value = serde_json::from_slice(body).map_err(|error| {
        let text = error.to_string();
        match text.split(" at line ").next() {
            Some(reason) if reason.starts_with("missing field") || reason.starts_with("duplicate field") => {
                BadRequest::Body(reason.to_owned())
            }
            _ => unreadable(&error, "a member is of the wrong type"),
        }
    })?;
    document::check(body).map_err(|error| unreadable(&error, document::fault(&error)))?;
    Ok(value)
}

/// The error for a body that is not JSON, or JSON with this `fault`.
fn unreadable(error: &serde_json::Error, fault: &str) -> BadRequest {
    let why = if error.is_data() { fault } else { "not JSON" };
    BadRequest::Body(format!("{why}, line {} column {}", error.line(), error.column()))
}

/// Parses an HTML form.
pub fn form(body: &[u8], request: &ApiRequest) -> Result<Vec<(String, String)>, Error> {
    if request.content_type.as_deref() != Some("application/x-www-form-urlencoded") || request.encoded {
        return Err(Error::UnsupportedMediaType);
    }
    Ok(url::form_urlencoded::parse(body).into_owned().take(MAX_FIELDS).collect())
}

//! Bodies: JSON of an expected shape, and the one form.

use serde::de::DeserializeOwned;

use super::incoming::Incoming;
use crate::error::{BadRequest, Error};

mod document;

/// Reads JSON. The words of the refusal name members and places, never values: a body may hold a token. Unknown members
/// are allowed, but nothing in them that a second reader could take for something else.
pub fn json<T: DeserializeOwned>(body: &[u8], incoming: &Incoming) -> Result<T, Error> {
    if incoming.content_type.as_deref() != Some("application/json") || incoming.encoded {
        return Err(Error::UnsupportedMediaType);
    }
    // A struct would also be read from a list of its members' values.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(BadRequest::Body("an object is expected".to_owned()).into());
    }
    let value = serde_json::from_slice(body).map_err(|error| {
        let text = error.to_string();
        match text.split(" at line ").next() {
            Some(told) if told.starts_with("missing field") || told.starts_with("duplicate field") => {
                BadRequest::Body(told.to_owned())
            }
            _ => unreadable(&error, "a member is of the wrong type"),
        }
    })?;
    document::check(body).map_err(|error| unreadable(&error, document::why(&error)))?;
    Ok(value)
}

/// Where it cannot be read: JSON that is `not_as_wanted`, or none.
fn unreadable(error: &serde_json::Error, not_as_wanted: &str) -> BadRequest {
    let why = if error.is_data() { not_as_wanted } else { "not JSON" };
    BadRequest::Body(format!("{why}, line {} column {}", error.line(), error.column()))
}

/// Reads a form as browsers send it.
pub fn form(body: &[u8], incoming: &Incoming) -> Result<Vec<(String, String)>, Error> {
    if incoming.content_type.as_deref() != Some("application/x-www-form-urlencoded") || incoming.encoded {
        return Err(Error::UnsupportedMediaType);
    }
    Ok(url::form_urlencoded::parse(body).into_owned().take(16).collect())
}

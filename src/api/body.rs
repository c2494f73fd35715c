//! Bodies: JSON of an expected shape, and the one form.

use serde::de::DeserializeOwned;

use super::incoming::Incoming;
use crate::error::{BadRequest, Error};

/// Reads JSON. The words of the refusal name members and places, never values: a body may hold a token.
pub fn json<T: DeserializeOwned>(body: &[u8], incoming: &Incoming) -> Result<T, Error> {
    if incoming.content_type.as_deref() != Some("application/json") || incoming.encoded {
        return Err(Error::UnsupportedMediaType);
    }
    // A struct would also be read from a list of its members' values.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(BadRequest::Body("an object is expected".to_owned()).into());
    }
    serde_json::from_slice(body).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let text = error.to_string();
        let told = match text.split(" at line ").next() {
            Some(told) if told.starts_with("missing field") || told.starts_with("duplicate field") => told.to_owned(),
            _ if error.is_data() => format!("a member is of the wrong type, {place}"),
            _ => format!("not JSON, {place}"),
        };
        BadRequest::Body(told).into()
    })
}

/// Reads a form as browsers send it.
pub fn form(body: &[u8], incoming: &Incoming) -> Result<Vec<(String, String)>, Error> {
    if incoming.content_type.as_deref() != Some("application/x-www-form-urlencoded") || incoming.encoded {
        return Err(Error::UnsupportedMediaType);
    }
    Ok(url::form_urlencoded::parse(body).into_owned().take(16).collect())
}

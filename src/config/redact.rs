//! Hides secrets in configured values before they are shown or quoted: by `config show`, and in the faults of a configuration.
//! It works on the text of any value, valid or not, so that a new setting cannot be forgotten and a mistyped one does not leak.

use std::borrow::Cow;

use serde_json::Value;

/// What stands for a secret.
pub(super) const HIDDEN: &str = "***";

/// Parameters of a query that are no secret: those of `directory.url`.
const OPEN_PARAMETERS: [&str; 2] = ["sslmode", "host"];

/// How names of secrets end in texts such as `user=deskgate password=…`.
const SECRET_NAMES: [&str; 6] = ["pass", "password", "passwd", "pwd", "secret", "token"];

/// A configured value without user name, password and the values of its query.
pub(super) fn redacted(value: &str) -> Cow<'_, str> {
    let without_credentials = hide_credentials(value);
    match hide_query(&without_credentials).or_else(|| hide_assignment(&without_credentials)) {
        Some(hidden) => hidden.into(),
        None => without_credentials,
    }
}

/// All texts of a value, see [`redacted`].
pub(super) fn redacted_value(value: Value) -> Value {
    match value {
        Value::String(text) => redacted(&text).into_owned().into(),
        Value::Array(values) => values.into_iter().map(redacted_value).collect(),
        Value::Object(keys) => keys.into_iter().map(|(key, value)| (key, redacted_value(value))).collect(),
        other => other,
    }
}

/// A message without the secrets of the values that it quotes.
pub(super) fn redacted_message(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find(['"', '`']) {
        let (before, quoted) = rest.split_at(start + 1);
        text.push_str(before);
        let quote = if before.ends_with('`') { '`' } else { '"' };
        let end = end_of_quote(quoted, quote);
        text.push_str(&redacted(&quoted[..end]));
        text.push_str(&quoted[end..][..usize::from(end < quoted.len())]);
        rest = quoted.get(end + 1..).unwrap_or_default();
    }
    text + rest
}

/// Where a quotation ends: at the next quotation mark that is not escaped, or at the end of the message.
fn end_of_quote(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    let end = text.find(|letter: char| {
        let ends = letter == quote && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        ends
    });
    end.unwrap_or(text.len())
}

/// Replaces what stands before an `@`. Passwords of `store.url` may contain `/`, so it is the last `@` that counts, except
/// in the path of an ordinary URL. Without `://`, a text with a colon before the `@` is taken for a mistyped URL.
fn hide_credentials(value: &str) -> Cow<'_, str> {
    let Some(end) = value.rfind('@') else { return value.into() };
    let Some(start) = value.find("://").map(|at| at + "://".len()).filter(|start| *start <= end) else {
        return if value[..end].contains(':') { format!("{HIDDEN}{}", &value[end..]).into() } else { value.into() };
    };
    let (scheme, rest) = value.split_at(start);
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if matches!(scheme, "http://" | "https://") {
        match authority.rfind('@') {
            Some(end) => return format!("{scheme}{HIDDEN}{}{path}", &authority[end..]).into(),
            // A port, or none: what follows is a path. Otherwise this is a password with a `/`.
            None if is_host_and_port(authority) => return value.into(),
            None => {}
        }
    }
    format!("{scheme}{HIDDEN}{}", &value[end..]).into()
}

fn is_host_and_port(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((_, port)) => port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit()),
        None => true,
    }
}

/// Replaces the values in the query of a URL or path; `None` if there is none.
fn hide_query(value: &str) -> Option<String> {
    let is_target = value.contains("://") || value.starts_with('/') || value.contains('@');
    let (before, rest) = value.split_once('?').filter(|_| is_target)?;
    let (query, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
    let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, _)) if OPEN_PARAMETERS.contains(&name) => parameter.to_owned(),
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None if parameter.is_empty() => String::new(),
        None => HIDDEN.to_owned(),
    });
    Some(format!("{before}?{}{fragment}", parameters.collect::<Vec<_>>().join("&")))
}

/// Replaces what follows `password=` and the like; `None` if there is no such name.
fn hide_assignment(value: &str) -> Option<String> {
    let lower = value.to_ascii_lowercase();
    let is_secret = |name: &str| SECRET_NAMES.iter().any(|secret| name.ends_with(secret));
    let at = lower.match_indices('=').map(|(at, _)| at).find(|at| is_secret(lower[..*at].trim_end()))?;
    Some(format!("{}{HIDDEN}", &value[..=at]))
}

#[cfg(test)]
mod tests;

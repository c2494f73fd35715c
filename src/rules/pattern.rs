//! Path patterns: literal segments, `{name}` for one segment, `{*rest}` for the tail.

use super::tree::Segment;
use crate::domain::path;
use crate::endpoints;

/// Splits and validates a pattern. Parameter names are dropped, so that `/a/{x}` and `/a/{y}` are the same pattern.
pub(super) fn compile(pattern: &str) -> Result<Vec<Segment>, String> {
    let Some(inside) = pattern.strip_prefix('/') else { return Err("a path starts with `/`".to_owned()) };
    if let Some(mark) = pattern.chars().find(|letter| matches!(letter, '?' | '#')) {
        let part = if mark == '?' { "query" } else { "fragment" };
        return Err(format!("a {part} is no part of a path: leave out `{mark}` and what follows it"));
    }
    let texts: Vec<&str> = inside.split('/').collect();
    let mut segments = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        segments.push(segment(text, index + 1 == texts.len())?);
    }
    let sample: String = segments
        .iter()
        .map(|segment| match segment {
            Segment::Literal(text) => format!("/{text}"),
            Segment::Any | Segment::Tail => "/x".to_owned(),
        })
        .collect();
    let encoded = percent_encoded(&sample);
    let canonical = path::canonical(encoded.as_bytes())
        .map_err(|fault| format!("{fault}: such a request is refused, so the rule would never match"))?;
    let spelled = canonical_texts(&canonical, &segments, &texts);
    for (index, (text, canonical)) in std::iter::zip(&texts, &spelled).enumerate() {
        check_foreign_parameter(text, canonical, index + 1 == texts.len())?;
    }
    if canonical != sample {
        return Err(format!("requests are matched in their canonical form: write it as `/{}`", spelled.join("/")));
    }
    if endpoints::is_reserved(&sample) {
        return Err("this path is reserved for the gateway's own endpoints".to_owned());
    }
    Ok(segments)
}

/// A path with escapes for the characters that may not stand bare in one, so that a fault can show its canonical form.
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>[]^`|".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The segments of a pattern with its literals in canonical form.
fn canonical_texts<'a>(canonical: &'a str, segments: &[Segment], texts: &[&'a str]) -> Vec<&'a str> {
    let written = std::iter::zip(segments, texts);
    std::iter::zip(canonical.split('/').skip(1), written)
        .map(|(canonical, (segment, text))| match segment {
            Segment::Literal(_) => canonical,
            Segment::Any | Segment::Tail => text,
        })
        .collect()
}

/// Whether a segment ends its pattern.
type Last = bool;

fn segment(text: &str, last: Last) -> Result<Segment, String> {
    match text.strip_prefix('{').and_then(|inside| inside.strip_suffix('}')) {
        Some(name) if is_name(name) => Ok(Segment::Any),
        Some(name) if name.strip_prefix('*').is_some_and(is_name) => {
            if last {
                Ok(Segment::Tail)
            } else {
                Err("`{*rest}` must be the last segment".to_owned())
            }
        }
        Some(_) => Err(format!("`{text}`: a parameter is `{{name}}` or `{{*rest}}`")),
        None if text.contains(['{', '}']) => Err(format!("`{text}`: a parameter must be a whole segment")),
        None => Ok(Segment::Literal(text.into())),
    }
}

/// Refuses a literal that other products read as a parameter: here it would match next to nothing.
fn check_foreign_parameter(text: &str, canonical: &str, last: Last) -> Result<(), String> {
    if let Some(name) = canonical.strip_prefix(':') {
        let name: String =
            name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
        let name = if name.is_empty() { "id" } else { &name };
        return Err(format!("`{text}`: write `{{{name}}}` for one segment"));
    }
    match canonical.strip_suffix('*') {
        Some(before) if before.bytes().all(|byte| byte == b'*') => Err(if last {
            format!("`{text}`: write `{{*rest}}` for the rest of the path")
        } else {
            format!("`{text}`: write `{{id}}` for one segment")
        }),
        Some(_) => Err(format!("`{text}`: a parameter must be a whole segment, `{{id}}` or `{{*rest}}`")),
        None => Ok(()),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

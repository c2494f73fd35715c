//! Path patterns: literal segments, `{name}` for one segment, `{*rest}` for the tail.

use super::tree::Segment;
use crate::domain::path;
use crate::endpoints;

/// Splits and validates a pattern. Parameter names are dropped, so that `/a/{x}` and `/a/{y}` are the same pattern.
pub(super) fn compile(pattern: &str) -> Result<Vec<Segment>, String> {
    let Some(inside) = pattern.strip_prefix('/') else { return Err("a path starts with `/`".to_owned()) };
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
    if path::canonical(sample.as_bytes()).as_deref() != Ok(&*sample) {
        return Err("not canonical: a request with this path is refused, so the rule would never match".to_owned());
    }
    if endpoints::is_reserved(&sample) {
        return Err("this path is reserved for the gateway's own endpoints".to_owned());
    }
    Ok(segments)
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

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

//! Path patterns: literal segments, `{name}` for one segment, `{*rest}` for the tail.

use crate::domain::path;
use crate::endpoints;

/// Checks a pattern and gives it the form that the router wants: parameters lose their names, so
/// that two spellings of one pattern are one.
pub(super) fn compile(pattern: &str) -> Result<String, String> {
    if !pattern.starts_with('/') {
        return Err("a path starts with `/`".to_owned());
    }
    let mut compiled = String::with_capacity(pattern.len());
    let segments: Vec<&str> = pattern[1..].split('/').collect();
    for (index, segment) in segments.iter().enumerate() {
        let last = index + 1 == segments.len();
        compiled.push('/');
        match segment.strip_prefix('{').and_then(|inside| inside.strip_suffix('}')) {
            Some(inside) if is_name(inside) => compiled.push_str(&format!("{{p{index}}}")),
            Some(inside) if last && inside.strip_prefix('*').is_some_and(is_name) => {
                compiled.push_str(&format!("{{*p{index}}}"));
            }
            Some(_) if segment.starts_with("{*") => return Err("`{*rest}` must be the last segment".to_owned()),
            Some(_) => return Err(format!("`{segment}`: a parameter is `{{name}}` or `{{*rest}}`")),
            None if segment.contains(['{', '}']) => {
                return Err(format!("`{segment}`: a parameter stands for a whole segment"));
            }
            None if segment.is_empty() && !last => return Err("`//` never arrives".to_owned()),
            None => compiled.push_str(segment),
        }
    }
    let literal: String = segments
        .iter()
        .map(|segment| if segment.starts_with('{') { "/x".to_owned() } else { format!("/{segment}") })
        .collect();
    if path::canonical(literal.as_bytes()).is_err() {
        return Err("not in plain form: such a path never arrives".to_owned());
    }
    if endpoints::is_ours(&literal) {
        return Err("this path is the gateway's own".to_owned());
    }
    Ok(compiled)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

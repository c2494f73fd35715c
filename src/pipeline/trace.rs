//! W3C trace context: continues the client's trace or starts a new one from the request id.

use super::request_id::RequestId;

/// The trace id and flags of an incoming `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId {
    id: [u8; 32],
    flags: [u8; 2],
}

impl TraceId {
    /// Parses a `traceparent` of version 00; `None` if it is malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let parts: Vec<&[u8]> = value.split(|byte| *byte == b'-').collect();
        let [b"00", id, parent, flags] = parts[..] else { return None };
        let is_hex = is_lower_hex(id) && is_lower_hex(parent) && is_lower_hex(flags);
        let is_set = id.iter().any(|byte| *byte != b'0') && parent.iter().any(|byte| *byte != b'0');
        if !is_hex || !is_set || parent.len() != 16 {
            return None;
        }
        Some(Self { id: id.try_into().ok()?, flags: flags.try_into().ok()? })
    }
}

fn is_lower_hex(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Writes the `traceparent` for the upstream. The span id comes from the request id, which is unique.
pub fn traceparent(id: &RequestId, trace: Option<TraceId>) -> [u8; 55] {
    // A trusted proxy's request id may have any form; trace and span ids are hexadecimal.
    let is_trace_id = id.as_bytes().len() == 32 && is_lower_hex(id.as_bytes());
    let own = if is_trace_id { *id } else { RequestId::fresh() };
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    match trace {
        Some(TraceId { id, flags }) => {
            text[3..35].copy_from_slice(&id);
            text[53..].copy_from_slice(&flags);
        }
        // `own` has 32 digits, see above.
        None => text[3..35].copy_from_slice(own.as_bytes()),
    }
    text[36..52].copy_from_slice(&own.as_bytes()[16..]);
    text
}

#[cfg(test)]
mod tests;

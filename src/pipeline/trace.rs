//! W3C trace context: continues the client's trace or starts a new one from the request id.

use super::request_id::{RequestId, hexadecimal};

/// A `traceparent`: a trace, a span in it, and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    trace: [u8; 32],
    span: [u8; 16],
    flags: [u8; 2],
}

impl TraceParent {
    /// The length of a value.
    pub const LENGTH: usize = 55;

    /// Where the span begins in a value.
    const SPAN: usize = 36;

    /// A sampled span.
    pub fn sampled(trace: u128, span: u64) -> Self {
        let mut text = [0; 32];
        // Both halves have 64 bits.
        text[..16].copy_from_slice(&hexadecimal((trace >> 64) as u64));
        text[16..].copy_from_slice(&hexadecimal(trace as u64));
        Self { trace: text, span: hexadecimal(span), flags: *b"01" }
    }

    /// Parses a value of version 00; `None` if it is malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut parts = value.split(|byte| *byte == b'-');
        let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let is_hex = is_lower_hex(trace) && is_lower_hex(span) && is_lower_hex(flags);
        let is_set = trace.iter().any(|byte| *byte != b'0') && span.iter().any(|byte| *byte != b'0');
        if version != b"00" || parts.next().is_some() || !is_hex || !is_set {
            return None;
        }
        Some(Self { trace: trace.try_into().ok()?, span: span.try_into().ok()?, flags: flags.try_into().ok()? })
    }

    /// The same span, which is not sampled.
    pub fn unsampled(self) -> Self {
        Self { flags: *b"00", ..self }
    }

    /// Whether the caller samples the trace.
    pub fn is_sampled(&self) -> bool {
        // The last bit of the flags.
        parse_hex(&self.flags).is_some_and(|flags| flags & 1 == 1)
    }

    /// The trace.
    pub fn trace_id(&self) -> u128 {
        parse_hex(&self.trace).unwrap_or(0)
    }

    /// The caller's span.
    pub fn span_id(&self) -> u64 {
        parse_hex(&self.span).and_then(|span| u64::try_from(span).ok()).unwrap_or(0)
    }

    /// The value.
    pub fn text(&self) -> [u8; Self::LENGTH] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        text[3..35].copy_from_slice(&self.trace);
        text[Self::SPAN..52].copy_from_slice(&self.span);
        text[53..].copy_from_slice(&self.flags);
        text
    }
}

/// Has no early exit, so that the compiler vectorizes the loop: every request has a request id.
fn is_lower_hex(text: &[u8]) -> bool {
    text.iter().fold(true, |is_hex, byte| is_hex & matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn parse_hex(text: &[u8]) -> Option<u128> {
    u128::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// The trace of a request that continues none: its request id, if that has the form of a trace id.
pub fn own_trace(id: &RequestId) -> Option<u128> {
    let text = id.as_bytes();
    let is_trace_id = text.len() == 32 && is_lower_hex(text);
    parse_hex(text).filter(|trace| is_trace_id && *trace != 0)
}

/// The `traceparent` for the upstream of a request that is not sampled here. The span id comes from the request id, which is
/// unique.
pub fn traceparent(id: &RequestId, trace: Option<TraceParent>) -> [u8; TraceParent::LENGTH] {
    // A trusted proxy's request id may have any form; trace and span ids are hexadecimal.
    let is_trace_id = id.as_bytes().len() == 32 && is_lower_hex(id.as_bytes());
    let own = if is_trace_id { *id } else { RequestId::fresh() };
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    match trace {
        Some(TraceParent { trace, flags, .. }) => {
            text[3..35].copy_from_slice(&trace);
            text[53..].copy_from_slice(&flags);
        }
        // `own` has 32 digits, see above.
        None => text[3..35].copy_from_slice(own.as_bytes()),
    }
    text[TraceParent::SPAN..52].copy_from_slice(&own.as_bytes()[16..]);
    text
}

/// Replaces the `traceparent` in a head for the upstream.
pub fn replace_traceparent(head: &mut [u8], parent: &TraceParent) {
    // No header value has a line break, so this is the beginning of the gateway's own line.
    const LINE: &[u8] = b"\r\ntraceparent: ";
    if let Some(value) = memchr::memmem::find(head, LINE).map(|at| at + LINE.len())
        && let Some(value) = head.get_mut(value..value + TraceParent::LENGTH)
    {
        value.copy_from_slice(&parent.text());
    }
}

#[cfg(test)]
mod tests;

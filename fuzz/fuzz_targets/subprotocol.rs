#![no_main]
//! The token parsers: never panic, and return only characters that a token may have.

use deskgate::pipeline::credentials::{Credential, from_header, from_subprotocols};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = from_header(bytes);
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if let Ok(Credential::Token(token, _)) = from_subprotocols(&lines) {
        assert!(!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b','));
    }
});

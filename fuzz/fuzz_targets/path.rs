#![no_main]
//! `path::canonical`: never panics, and its output is canonical.

use deskgate::domain::path::canonical;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(path) = canonical(bytes) {
        assert_eq!(canonical(path.as_bytes()).as_deref(), Ok(&*path));
        assert!(!path.contains("//") && !path.contains('\\') && !path.contains(';'));
        assert!(!path.split('/').any(|segment| segment == "." || segment == ".."));
    }
});

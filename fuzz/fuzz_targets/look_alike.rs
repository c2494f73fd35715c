#![no_main]
//! `is_look_alike`: recognises exactly the names that fold to `x-deskgate` or `x-deskgate-*`.

use deskgate::domain::identity::is_look_alike;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|name: &[u8]| {
    let folded: Vec<u8> =
        name.iter().map(|byte| if matches!(byte, b'_' | b'.') { b'-' } else { byte.to_ascii_lowercase() }).collect();
    assert_eq!(is_look_alike(name), folded.starts_with(b"x-deskgate-") || folded == b"x-deskgate");
});

use std::time::Duration;

use totp_rs::{Builder, Totp};

use super::*;

/// The secret of RFC 6238, appendix B, for SHA-1.
const RFC: &[u8; 20] = b"12345678901234567890";

fn device() -> OtpSecret {
    OtpSecret::from_bytes(RFC).expect("20 bytes")
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

#[test]
fn codes_match_rfc_6238_appendix_b() {
    let table = [
        (59, 94_287_082, "287082"),
        (1_111_111_109, 7_081_804, "081804"),
        (1_111_111_111, 14_050_471, "050471"),
        (1_234_567_890, 89_005_924, "005924"),
        (2_000_000_000, 69_279_037, "279037"),
        (20_000_000_000, 65_353_130, "353130"),
    ];
    for (seconds, eight_digits, code) in table {
        let step = Step::at(at(seconds));
        assert_eq!(device().number(step) % 100_000_000, eight_digits, "{seconds}");
        assert_eq!(device().code(step).text(), code, "{seconds}");
        assert_eq!(device().check(&TotpCode::read(code).expect("a code"), at(seconds)), Some(step), "{seconds}");
    }
}

#[test]
fn one_step_of_clock_drift_is_accepted_either_way() {
    let now = at(1_800_000_000);
    let Step(current) = Step::at(now);
    let table = [(-2, None), (-1, Some(-1)), (0, Some(0)), (1, Some(1)), (2, None)];
    for (drift, expected) in table {
        let code = device().code(Step(current + drift));
        assert_eq!(device().check(&code, now), expected.map(|drift| Step(current + drift)), "{drift}");
    }
}

#[test]
fn a_time_step_lasts_half_a_minute() {
    let first = at(1_800_000_000);
    let last = first.plus(Duration::from_millis(29_999));
    let next = first.plus(Duration::from_secs(30));
    assert_eq!(Step::at(first), Step::at(last));
    assert!(Step::at(next) > Step::at(last), "a newer step compares as newer");
}

#[test]
fn there_is_no_time_step_before_1970() {
    for (case, now) in [("1970", at(0)), ("before", at(-86_400))] {
        assert_eq!(device().check(&device().code(Step(0)), now), Some(Step(0)), "{case}");
        assert_eq!(device().check(&device().code(Step(1)), now), Some(Step(1)), "{case}");
        assert_eq!(device().check(&device().code(Step(-1)), now), None, "{case}");
    }
}

#[test]
fn a_code_is_exactly_six_ascii_digits() {
    assert!(TotpCode::read("000000").is_some() && TotpCode::read("287082").is_some());
    let table = [
        ("empty", ""),
        ("five digits", "28708"),
        ("seven digits", "2870821"),
        ("arabic digits", "٢٨٧٠٨٢"),
        ("three arabic digits, six bytes", "٢٨٧"),
        ("fullwidth digits", "２８７０８２"),
        ("two fullwidth digits, six bytes", "２８"),
        ("a space inside", "287 082"),
        ("a space for a digit", "28708 "),
        ("a space before", " 287082"),
        ("a line break", "287082\n"),
        ("minus", "-28708"),
        ("plus", "+28708"),
        ("hexadecimal", "0x2870"),
        ("letters", "abcdef"),
        ("NUL", "28708\0"),
        ("an exponent", "2870e2"),
        ("a point", "28.082"),
    ];
    for (case, text) in table {
        assert_eq!(TotpCode::read(text), None, "{case}");
    }
}

#[test]
fn a_code_of_another_device_is_rejected() {
    let now = at(59);
    let other = OtpSecret::from_bytes(b"09876543210987654321").expect("20 bytes");
    assert_eq!(other.check(&device().code(Step::at(now)), now), None);
}

#[test]
fn of_two_steps_with_the_same_code_the_newer_is_returned() {
    // Found by search: one pair of neighbours in a million shares a code.
    let older = 62_075_368;
    assert_eq!(device().code(Step(older)), device().code(Step(older + 1)));
    let now = at(older * PERIOD);
    assert_eq!(device().check(&device().code(Step(older)), now), Some(Step(older + 1)));
}

#[test]
fn the_secret_is_shown_in_base32_without_padding() {
    assert_eq!(device().base32().reveal(), "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
}

#[test]
fn issuer_and_account_are_percent_encoded_for_apps() {
    const REST: &str = "secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    let table = [
        ("plain", "deskgate", "a2001", "deskgate:a2001", "deskgate"),
        ("space and slash", "IT Desk", "wwdemo/a2001", "IT%20Desk:wwdemo%2Fa2001", "IT%20Desk"),
        ("chinese", "服务台", "林", "%E6%9C%8D%E5%8A%A1%E5%8F%B0:%E6%9E%97", "%E6%9C%8D%E5%8A%A1%E5%8F%B0"),
        ("query delimiters", "a&b=c?d#e", "x+y%z", "a%26b%3Dc%3Fd%23e:x%2By%25z", "a%26b%3Dc%3Fd%23e"),
        ("colons", "a:b", "c:d", "a.b:c.d", "a.b"),
    ];
    for (case, issuer, account, path, shown) in table {
        let expected = format!("otpauth://totp/{path}?{REST}&issuer={shown}&algorithm=SHA1&digits=6&period=30");
        assert_eq!(*device().url(issuer, account).reveal(), expected, "{case}");
    }
}

#[test]
fn codes_and_urls_agree_with_totp_rs() {
    for seed in 0..50 {
        let ours = OtpSecret::random();
        let theirs = Totp::from_url(ours.url("IT Desk", "wwdemo/王小明").reveal()).expect("totp-rs reads the URL");
        assert_eq!(theirs.issuer(), Some("IT Desk"));
        assert_eq!(theirs.account_name(), "wwdemo/王小明");
        let built = Builder::new().with_secret(ours.bytes().to_vec()).build().expect("a device");
        for round in 0..20_i64 {
            let now = seed * 40_000_000 + round * 1_234_567;
            let code = ours.code(Step::at(at(now))).text();
            for device in [&theirs, &built] {
                assert_eq!(device.generate(now.unsigned_abs()).to_string(), code);
            }
        }
    }
}

#[test]
fn secrets_are_twenty_random_bytes_hidden_in_debug_output() {
    let (one, other) = (OtpSecret::random(), OtpSecret::random());
    assert_ne!(one, other);
    assert_eq!(OtpSecret::from_bytes(one.bytes()), Some(one.clone()));
    for length in [0, 19, 21] {
        assert_eq!(OtpSecret::from_bytes(&vec![0; length]), None, "{length}");
    }
    let shown = format!("{:?} {:?}", device(), device().code(Step(1)));
    assert!(!shown.contains("49") && !shown.contains("287082"));
}

#[test]
fn a_time_step_is_stored_as_a_number() {
    assert_eq!(serde_json::to_string(&Step(60_000_000)).expect("json"), "60000000");
    assert_eq!(Step::from_number(Step(7).number()), Step(7));
}

use super::*;

#[test]
fn a_trace_goes_on_only_from_a_well_formed_parent() {
    let table: &[(&str, bool)] = &[
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
        ("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false),
        ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", false),
        ("00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", false),
        ("", false),
    ];
    for (value, expected) in table {
        assert_eq!(TraceId::given(value.as_bytes()).is_some(), *expected, "{value}");
    }
}

#[test]
fn every_request_has_a_span_of_its_own_in_its_trace() {
    let trace = TraceId::given(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let (first, second) = (traceparent(&RequestId::fresh(), trace), traceparent(&RequestId::fresh(), trace));
    assert!(first.starts_with(b"00-4bf92f3577b34da6a3ce929d0e0e4736-") && first.ends_with(b"-01"));
    assert_ne!(first, second);
    assert!(TraceId::given(&traceparent(&RequestId::fresh(), None)).is_some());
}

#[test]
fn addresses_are_written_as_everybody_writes_them() {
    let table =
        ["0.0.0.0", "1.2.3.4", "10.20.30.40", "127.0.0.1", "192.168.100.9", "255.255.255.255", "::1", "2001:db8::9"];
    for text in table {
        let parsed: IpAddr = text.parse().expect("an address");
        assert_eq!(address(parsed), text);
    }
}

#[test]
fn a_cookie_in_several_lines_becomes_one() {
    let table: &[(&[&str], &str)] =
        &[(&["a=1"], "a=1"), (&["a=1", "b=2"], "a=1; b=2"), (&["a=1; b=2", "c=3", "d=4"], "a=1; b=2; c=3; d=4")];
    for (lines, expected) in table {
        let mut headers = HeaderMap::new();
        for line in *lines {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        join_cookies(&mut headers);
        let joined: Vec<&HeaderValue> = headers.get_all(COOKIE).iter().collect();
        assert_eq!(joined, [expected], "{lines:?}");
    }
}

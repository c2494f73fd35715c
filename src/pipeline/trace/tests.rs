use super::*;

#[test]
fn only_a_well_formed_traceparent_is_continued() {
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
        assert_eq!(TraceId::parse(value.as_bytes()).is_some(), *expected, "{value}");
    }
}

#[test]
fn each_request_has_its_own_span_in_the_trace() {
    let trace = TraceId::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let (first, second) = (traceparent(&RequestId::fresh(), trace), traceparent(&RequestId::fresh(), trace));
    assert!(first.starts_with(b"00-4bf92f3577b34da6a3ce929d0e0e4736-") && first.ends_with(b"-01"));
    assert_ne!(first, second);
    assert!(TraceId::parse(&traceparent(&RequestId::fresh(), None)).is_some());
}

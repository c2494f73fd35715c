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
        assert_eq!(TraceParent::parse(value.as_bytes()).is_some(), *expected, "{value}");
    }
}

#[test]
fn each_request_has_its_own_span_in_the_trace() {
    let trace = TraceParent::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let (first, second) = (traceparent(&RequestId::fresh(), trace), traceparent(&RequestId::fresh(), trace));
    assert!(first.starts_with(b"00-4bf92f3577b34da6a3ce929d0e0e4736-") && first.ends_with(b"-01"));
    assert_ne!(first, second);
    assert!(TraceParent::parse(&traceparent(&RequestId::fresh(), None)).is_some());
}

#[test]
fn a_value_is_written_as_it_was_read() {
    let table: &[(&[u8], bool)] = &[
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
        (b"00-0000000000000000000000000000000a-000000000000000b-00", false),
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", true),
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02", false),
    ];
    for (value, is_sampled) in table {
        let parent = TraceParent::parse(value).expect("well formed");
        assert_eq!(parent.text(), *value);
        assert_eq!(parent.is_sampled(), *is_sampled, "{value:?}");
        let again = TraceParent::sampled(parent.trace_id(), parent.span_id());
        assert_eq!(again.unsampled(), parent.unsampled());
        assert!(again.is_sampled() && !parent.unsampled().is_sampled());
    }
}

#[test]
fn only_the_own_line_of_a_head_is_replaced() {
    let old = String::from_utf8(traceparent(&RequestId::fresh(), None).to_vec()).expect("text");
    let head = |value: &str| {
        format!("GET /traceparent:%20 HTTP/1.1\r\nx-a: traceparent: {old}\r\ntraceparent: {value}\r\nhost: a\r\n\r\n")
    };
    let mut bytes = head(&old).into_bytes();
    let parent = TraceParent::sampled(10, 11);
    replace_traceparent(&mut bytes, &parent);
    let new = "00-0000000000000000000000000000000a-000000000000000b-01";
    assert_eq!(String::from_utf8(bytes).expect("text"), head(new));
}

#[test]
fn only_an_id_of_the_right_form_is_the_trace_of_its_request() {
    let table: &[(&str, Option<u128>)] = &[
        ("0000000000000000000000000000000a", Some(10)),
        ("0000000000000000000000000000000A", None),
        ("00000000000000000000000000000000", None),
        ("a-request-id", None),
        ("0000000a", None),
    ];
    for (id, expected) in table {
        assert_eq!(own_trace(&RequestId::parse(id.as_bytes()).expect("an id")), *expected, "{id}");
    }
}

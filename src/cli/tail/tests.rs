use super::*;

#[test]
fn a_refusal_is_one_line_with_its_reason_last() {
    let line = request_line(&FinishedRequest::sample());
    assert_eq!(
        line,
        "1970-01-01T00:00:01.500Z 403 GET /api/agent-desk/x code=1003 rule=\"agent desk\" employee=u1001 client=10.1.2.3 \
         took=1.2ms id=0123456789abcdef: refused with 1003: forbidden"
    );
}

#[test]
fn a_request_without_response_rule_or_caller_has_dashes() {
    let cut = FinishedRequest { status: 0, code: 0, rule: None, employee_id: None, ..FinishedRequest::sample() };
    let line = request_line(&cut);
    assert!(line.contains(" --- GET ") && line.contains(" rule=\"-\" employee=- "), "{line}");
    assert!(!line.contains("code="), "{line}");
}

#[test]
fn lost_requests_are_counted_in_both_formats() {
    assert!(text(&FollowEvent::Lost(7)).contains("7 requests are not shown"));
    assert_eq!(json(&FollowEvent::Lost(7)), r#"{"lost":7}"#);
}

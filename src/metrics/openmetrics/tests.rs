use super::super::{Exemplar, MethodLabel, Metrics};

const SLOW: Exemplar = Exemplar { trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, at: 1_790_000_000.25 };

fn page(metrics: &Metrics) -> String {
    String::from_utf8(metrics.render_openmetrics()).expect("text")
}

#[test]
fn counters_are_named_without_their_suffix_and_the_page_has_an_end() {
    let metrics = Metrics::new().expect("metrics");
    metrics.of_rule("desk").count_request(MethodLabel::Get, 200, 0.5, None);
    let page = page(&metrics);
    assert!(page.contains("# TYPE deskgate_requests counter\n# HELP deskgate_requests Requests answered"), "{page}");
    assert!(page.contains("\ndeskgate_requests_total{code_class=\"2xx\",method=\"GET\",rule=\"desk\"} 1\n"), "{page}");
    assert!(page.contains("# TYPE deskgate_request_seconds histogram\n"), "{page}");
    assert!(page.ends_with("\n# EOF\n"), "{page}");
    let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let distinct: std::collections::BTreeSet<&&str> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "two metrics have the same name without the suffix: {names:?}");
}

#[test]
fn a_bucket_has_the_last_sampled_request_in_it() {
    let metrics = Metrics::new().expect("metrics");
    let rule = metrics.of_rule("the \"desk\" \\");
    rule.count_request(MethodLabel::Get, 200, 0.3, Some(Exemplar { trace_id: 1, ..SLOW }));
    rule.count_request(MethodLabel::Get, 200, 0.4, Some(SLOW));
    rule.count_request(MethodLabel::Get, 200, 0.4, None);
    rule.count_request(MethodLabel::Get, 200, 900.0, Some(Exemplar { trace_id: 2, ..SLOW }));
    let page = page(&metrics);
    let found: Vec<&str> = page.lines().filter(|line| line.contains("trace_id")).collect();
    assert_eq!(
        found,
        [
            "deskgate_request_seconds_bucket{rule=\"the \\\"desk\\\" \\\\\",le=\"0.5\"} 3 \
             # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} 0.4 1790000000.250",
            "deskgate_request_seconds_bucket{rule=\"the \\\"desk\\\" \\\\\",le=\"+Inf\"} 4 \
             # {trace_id=\"00000000000000000000000000000002\"} 900 1790000000.250",
        ]
    );
}

#[test]
fn the_text_format_has_no_exemplars() {
    let metrics = Metrics::new().expect("metrics");
    metrics.of_rule("desk").count_request(MethodLabel::Get, 200, 0.3, Some(SLOW));
    let page = String::from_utf8(metrics.render()).expect("text");
    assert!(!page.contains("trace_id") && !page.contains("# EOF"), "{page}");
}

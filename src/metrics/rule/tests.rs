use super::*;

fn samples(metrics: &Metrics) -> Vec<String> {
    let page = String::from_utf8(metrics.render()).expect("text");
    let of_rules = page.lines().filter(|line| line.contains("rule=\"desk\"") && !line.contains("_bucket"));
    of_rules.map(str::to_owned).collect()
}

#[test]
fn series_of_a_rule_appear_when_they_are_used() {
    let metrics = Metrics::new().expect("metrics");
    let rule = metrics.of_rule("desk");
    assert_eq!(samples(&metrics), Vec::<String>::new());
    rule.count_request(MethodLabel::Get, 204, 0.5, None);
    rule.count_request(MethodLabel::Get, 200, 0.5, None);
    rule.count_request(MethodLabel::Other, 0, 1.0, None);
    rule.allowed.inc();
    rule.websockets_open.inc();
    rule.websockets_open.dec();
    assert_eq!(
        samples(&metrics),
        [
            "deskgate_authz_total{rule=\"desk\",verdict=\"allow\"} 1",
            "deskgate_request_seconds_sum{rule=\"desk\"} 2",
            "deskgate_request_seconds_count{rule=\"desk\"} 3",
            "deskgate_requests_total{code_class=\"2xx\",method=\"GET\",rule=\"desk\"} 2",
            "deskgate_requests_total{code_class=\"other\",method=\"other\",rule=\"desk\"} 1",
            "deskgate_websockets_open{rule=\"desk\"} 0",
        ]
    );
}

#[test]
fn a_rule_that_is_loaded_again_goes_on_counting() {
    let metrics = Metrics::new().expect("metrics");
    for _ in 0..2 {
        metrics.of_rule("desk").denied.inc();
    }
    assert_eq!(samples(&metrics), ["deskgate_authz_total{rule=\"desk\",verdict=\"deny\"} 2"]);
}

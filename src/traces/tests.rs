use super::*;
use crate::metrics::Metrics;

const PARENT: ParentSpan = ParentSpan { trace: 7, span: 9, decision: None };

fn tracer(sample: f64) -> (Arc<Tracer>, SpanExporter, TraceMetrics) {
    let metrics = Metrics::new().expect("metrics").traces();
    let url = "http://127.0.0.1:1/v1/traces".parse().expect("a URL");
    let target = TraceTarget::new(url, "deskgate", "test").expect("a client");
    let (tracer, exporter) = Tracer::new(sample, Clock::system(), metrics.clone(), target);
    (tracer, exporter, metrics)
}

fn begin(tracer: &Arc<Tracer>, parent: Option<ParentSpan>) -> Option<Box<RequestTrace>> {
    tracer.begin(parent, None, Instant::now(), TraceSubject::default)
}

#[test]
fn the_share_of_requests_is_sampled() {
    for (sample, expected) in [(0.0, 0..=0), (0.25, 2_300..=2_700), (1.0, 10_000..=10_000)] {
        let (tracer, _exporter, _) = tracer(sample);
        let sampled = (0..10_000).filter(|_| begin(&tracer, Some(PARENT)).is_some()).count();
        assert!(expected.contains(&sampled), "{sampled} of 10000 with {sample}");
    }
}

#[test]
fn a_decision_of_the_parent_goes_before_the_share() {
    for (sample, decision, expected) in
        [(0.0, Sampling::Sampled, true), (1.0, Sampling::NotSampled, false), (1.0, Sampling::Sampled, true)]
    {
        let (tracer, _exporter, _) = tracer(sample);
        let trace = begin(&tracer, Some(ParentSpan { decision: Some(decision), ..PARENT }));
        assert_eq!(trace.is_some(), expected, "{sample} {decision:?}");
    }
}

#[test]
fn a_trace_is_continued_or_begins_with_the_request() {
    let (tracer, _exporter, _) = tracer(1.0);
    let trace = |parent, own| tracer.begin(parent, own, Instant::now(), TraceSubject::default).expect("sampled");
    assert_eq!(trace(Some(PARENT), Some(5)).trace_id(), 7);
    assert_eq!(trace(None, Some(5)).trace_id(), 5);
    assert_ne!(trace(None, None).trace_id(), trace(None, None).trace_id());
}

#[test]
fn every_attempt_has_a_span_of_its_own() {
    let (tracer, _exporter, _) = tracer(1.0);
    let mut trace = begin(&tracer, None).expect("sampled");
    let mut spans = vec![trace.current_span()];
    for number in 1..=5 {
        trace.begin_attempt(number, &"helpdesk".into(), "127.0.0.1:8000");
        spans.push(trace.current_span());
    }
    spans.sort_unstable();
    spans.dedup();
    assert_eq!(spans.len(), 6);
    assert!(!spans.contains(&0), "zero is no id");
}

#[test]
fn calls_of_the_platform_have_spans_of_their_own() {
    let (tracer, _exporter, _) = tracer(1.0);
    let ids = TraceIds { trace: 7, span: tracer.random(), parent: None };
    let record = TraceRecord::new(ids, 0, Instant::now(), TraceSubject::default());
    let attempts = (1..=100).map(|number| record.attempt_span(number));
    let mut spans: Vec<u64> = attempts.chain((0..100).map(|index| record.call_span(index))).collect();
    spans.sort_unstable();
    spans.dedup();
    assert_eq!(spans.len(), 200);
    assert!(!spans.contains(&ids.span) && !spans.contains(&0));
}

#[test]
fn what_does_not_fit_into_the_queue_is_dropped_and_counted() {
    let (tracer, _exporter, metrics) = tracer(1.0);
    for _ in 0..QUEUE {
        begin(&tracer, None);
    }
    assert_eq!(metrics.queue_full.get(), 0);
    let mut trace = begin(&tracer, None).expect("sampled");
    trace.begin_attempt(1, &"helpdesk".into(), "127.0.0.1:8000");
    trace.finish(TraceEnd { status: 200, code: None });
    assert_eq!(metrics.queue_full.get(), 2, "the spans of the request and of its attempt");
}

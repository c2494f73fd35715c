use super::*;

#[tokio::test]
async fn a_panic_in_a_handler_becomes_a_1005_of_its_request() {
    let metrics = Metrics::new().expect("metrics");
    let panicking = async { if metrics.panics.get() == 0 { panic!("a bug in a handler") } else { Ok(()) } };
    let error = panic_to_error(&metrics, panicking).await.expect_err("refused");
    assert_eq!(error.code().number(), 1005);
    assert_eq!(metrics.panics.get(), 1);
    assert!(panic_to_error(&metrics, async { Ok(7) }).await.is_ok(), "other requests are answered");
}

#[test]
fn pingora_errors_map_to_error_codes() {
    let failure = |source: ErrorSource, kind: ErrorType| {
        let mut error = pingora_core::Error::new(kind);
        error.esource = source;
        client_error(&error).map(|error| error.code().number())
    };
    let table = [
        (ErrorSource::Upstream, ErrorType::ConnectRefused, Some(1502)),
        (ErrorSource::Upstream, ErrorType::ConnectTimedout, Some(1504)),
        (ErrorSource::Upstream, TOTAL_TIMEOUT, Some(1504)),
        (ErrorSource::Upstream, ErrorType::ReadTimedout, Some(1504)),
        (ErrorSource::Upstream, ErrorType::WriteTimedout, Some(1504)),
        (ErrorSource::Upstream, ErrorType::InvalidHTTPHeader, Some(1502)),
        (ErrorSource::Downstream, ErrorType::ReadTimedout, Some(1408)),
        (ErrorSource::Downstream, ErrorType::InvalidHTTPHeader, Some(1400)),
        (ErrorSource::Downstream, ErrorType::InternalError, Some(1400)),
        (ErrorSource::Downstream, ErrorType::ConnectionClosed, None),
        (ErrorSource::Downstream, ErrorType::WriteError, None),
        (ErrorSource::Internal, ErrorType::InternalError, Some(1005)),
    ];
    for (source, kind, expected) in table {
        let case = format!("{source:?} {kind:?}");
        assert_eq!(failure(source, kind), expected, "{case}");
    }
}

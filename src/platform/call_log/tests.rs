use super::*;

fn url() -> Url {
    "https://user:name-and-password@qyapi.example.com/prefix/cgi-bin/gettoken?corpsecret=hunter2#part"
        .parse()
        .expect("a URL")
}

#[tokio::test]
async fn the_calls_of_watched_work_are_recorded_without_what_the_url_hides() {
    let log = CallLog::default();
    let work = async {
        RunningCall::begin("cgi-bin/gettoken", "GET", &url()).end(Some(200), None);
        RunningCall::begin("cgi-bin/user/get", "GET", &url()).end(None, Some(CallFailure::Timeout));
        7
    };
    assert_eq!(log.watch(work).await, 7);
    let calls = log.take();
    let [first, second] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((first.api, first.status, first.failure), ("cgi-bin/gettoken", Some(200), None));
    assert_eq!((first.host.as_str(), first.port), ("qyapi.example.com", Some(443)));
    assert_eq!((second.api, second.status, second.failure), ("cgi-bin/user/get", None, Some(CallFailure::Timeout)));
    assert!(first.began <= first.ended && first.ended <= second.began, "{calls:?}");
    let text = format!("{calls:?}");
    assert!(!text.contains("hunter2") && !text.contains("password") && !text.contains("prefix"), "{text}");
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_recorded() {
    let log = CallLog::default();
    let work = async {
        let _call = RunningCall::begin("cgi-bin/gettoken", "GET", &url());
        std::future::pending::<()>().await;
    };
    let cancelled = tokio::select! {
        biased;
        () = log.watch(work) => false,
        () = std::future::ready(()) => true,
    };
    assert!(cancelled);
    let calls = log.take();
    assert_eq!(calls.iter().map(|call| call.failure).collect::<Vec<_>>(), [Some(CallFailure::Cancelled)]);
}

#[tokio::test]
async fn each_request_has_its_own_calls_and_background_work_has_none() {
    RunningCall::begin("cgi-bin/gettoken", "GET", &url()).end(Some(200), None);
    let (one, two) = (CallLog::default(), CallLog::default());
    let call = async |api: &'static str| {
        tokio::task::yield_now().await;
        RunningCall::begin(api, "GET", &url()).end(Some(200), None);
    };
    tokio::join!(one.watch(call("one")), two.watch(call("two")), call("none"));
    for (log, api) in [(one, "one"), (two, "two")] {
        assert_eq!(log.take().iter().map(|call| call.api).collect::<Vec<_>>(), [api]);
    }
}

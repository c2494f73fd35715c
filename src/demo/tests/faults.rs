//! Injected faults: delays, -1, 502 and the frequency limit.

use super::*;

async fn department(simulator: &SimulatedPlatform) -> i64 {
    errcode(simulator, path::DEPARTMENT, &[("access_token", "x"), ("id", "2")]).await
}

#[tokio::test]
async fn busy_fails_the_next_calls() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| {
        switches.busy = [("*".to_owned(), Times::Next(2)), (path::USER.to_owned(), Times::Next(1))].into();
    });
    let table = [
        ("a path of its own", path::USER, -1),
        ("any path", path::DEPARTMENT, -1),
        ("a path that has used its own up", path::USER, -1),
        ("nothing left", path::DEPARTMENT, 41001),
    ];
    for (case, path, expected) in table {
        assert_eq!(errcode(&simulator, path, &[]).await, expected, "{case}");
    }
    simulator.switches(|switches| assert!(switches.busy.is_empty(), "a used-up entry is removed"));
    simulator.switches(|switches| switches.busy = [("*".to_owned(), Times::All)].into());
    for _ in 0..3 {
        assert_eq!(department(&simulator).await, -1);
    }
    let seen = open(authorize_url(&simulator, &[])).await;
    assert_eq!(seen.status, StatusCode::OK, "a page is not the server API");
}

#[tokio::test]
async fn busy_leaves_the_code_usable() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let code = code_of(&simulator, "u1001").await;
    simulator.switches(|switches| switches.busy = [(path::USER_INFO.to_owned(), Times::Next(1))].into());
    let query = [("access_token", token.as_str()), ("code", &code)];
    assert_eq!(errcode(&simulator, path::USER_INFO, &query).await, -1);
    assert_eq!(errcode(&simulator, path::USER_INFO, &query).await, 0);
}

#[tokio::test]
async fn bad_gateway_responds_with_html() {
    let (simulator, _) = simulator().await;
    let ask = async |path: &str| open(simulator.api_url().join(path).unwrap()).await;
    simulator.switches(|switches| switches.bad_gateway = [("*".to_owned(), Times::Next(1))].into());
    assert_eq!(ask(path::AUTHORIZE).await.status, StatusCode::BAD_REQUEST, "a page must be named");
    let seen = ask(path::TOKEN).await;
    assert_eq!(seen.status, StatusCode::BAD_GATEWAY);
    assert!(serde_json::from_str::<Value>(&seen.text).is_err());
    assert_eq!(ask(path::TOKEN).await.status, StatusCode::OK);

    simulator.switches(|switches| switches.bad_gateway = [(path::AUTHORIZE.to_owned(), Times::All)].into());
    for _ in 0..2 {
        assert_eq!(ask(path::AUTHORIZE).await.status, StatusCode::BAD_GATEWAY);
    }
    assert_eq!(ask(path::CONTROL).await.status, StatusCode::OK, "faults do not apply to the control page");
}

#[tokio::test]
async fn a_slow_path_does_not_delay_others() {
    let (simulator, _) = simulator().await;
    // Longer than the test: the slow call is still open when the others have completed.
    let long = Duration::from_secs(3600);
    simulator.switches(|switches| switches.slow = [(path::USER.to_owned(), long)].into());
    let slow = open(simulator.api_url().join(path::USER).unwrap());
    let others = async {
        while simulator.calls(path::USER) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            assert_eq!(department(&simulator).await, 40014);
        }
    };
    tokio::select! {
        _ = slow => panic!("the call was not delayed"),
        () = others => {}
    }
}

#[tokio::test]
async fn slow_delays_the_response() {
    let (simulator, _) = simulator().await;
    let span = Duration::from_millis(20);
    let table = [(path::DEPARTMENT, true), ("*", true), (path::TOKEN, false)];
    for (key, delayed) in table {
        simulator.switches(|switches| switches.slow = [(key.to_owned(), span)].into());
        simulator.switches(|switches| assert_eq!(switches.delay(path::DEPARTMENT), delayed.then_some(span), "{key}"));
        simulator.switches(|switches| assert_eq!(switches.delay(path::AUTHORIZE), None, "{key}"));
        let start = std::time::Instant::now();
        assert_eq!(department(&simulator).await, 40014);
        assert!(!delayed || start.elapsed() >= span, "{key}");
    }
}

#[tokio::test]
async fn exceeding_frequency_limit_blocks_the_path_for_a_minute() {
    let (simulator, clock) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let query = [("access_token", token.as_str()), ("id", "2")];
    simulator.switches(|switches| switches.frequency_limit = Some(2));
    let ask = async || errcode(&simulator, path::DEPARTMENT, &query).await;
    assert_eq!([ask().await, ask().await, ask().await, ask().await], [0, 0, 45009, 45009]);
    assert_eq!(errcode(&simulator, path::DEPARTMENT_LIST, &query[..1]).await, 0, "another path");
    clock.advance(Duration::from_secs(59));
    assert_eq!(ask().await, 45009);
    clock.advance(Duration::from_secs(1));
    assert_eq!([ask().await, ask().await, ask().await], [0, 0, 45009]);
    simulator.switches(|switches| switches.frequency_limit = Some(1));
    assert_eq!([ask().await, ask().await], [0, 45009], "a new limit counts from now");
}

#[tokio::test]
async fn frequency_limit_exempts_the_exchange_of_a_valid_code() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let codes = [code_of(&simulator, "u1001").await, code_of(&simulator, "a2001").await];
    simulator.switches(|switches| switches.frequency_limit = Some(0));
    let ask =
        async |path: &str, code: &str| errcode(&simulator, path, &[("access_token", &token), ("code", code)]).await;
    assert_eq!(ask(path::USER_INFO, "bad").await, 45009);
    assert_eq!(ask(path::USER_INFO, &codes[0]).await, 0);
    assert_eq!(ask(path::USER_INFO, &codes[0]).await, 45009, "used");
    assert_eq!(ask(path::LEGACY_USER_INFO, &codes[1]).await, 45009, "the older path is not exempt");
}

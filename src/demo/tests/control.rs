//! The switches over HTTP.

use super::*;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

async fn control(simulator: &SimulatedPlatform, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
    let url = simulator.api_url().join(path).unwrap();
    let seen = send(method, url, &[("content-type", "application/json")], body).await;
    (seen.status, serde_json::from_str(&seen.text).unwrap())
}

#[tokio::test]
async fn programs_read_set_and_reset_the_switches() {
    let (simulator, _) = simulator().await;
    let defaults = serde_json::to_value(Switches::default()).unwrap();
    let path = "/simulator/switches";
    assert_eq!(control(&simulator, Method::GET, path, "").await, (StatusCode::OK, defaults.clone()));
    let change = json!({ "busy": { "*": 1 }, "token_lifetime_seconds": 60 });
    let (status, after) = control(&simulator, Method::PATCH, path, &change.to_string()).await;
    assert_eq!(
        (status, &after["busy"], &after["token_lifetime_seconds"]),
        (StatusCode::OK, &json!({ "*": 1 }), &json!(60))
    );
    assert_eq!(errcode(&simulator, path::TOKEN, &[]).await, -1);

    let (status, answer) =
        control(&simulator, Method::PATCH, path, r#"{"client_only": 1, "nonsense": 2, "busy": {"*": 9}}"#).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let named: Vec<&str> =
        answer["faults"].as_array().unwrap().iter().map(|fault| fault["switch"].as_str().unwrap()).collect();
    assert_eq!(named, ["client_only", "nonsense"]);
    simulator.switches(|switches| assert!(switches.busy.is_empty(), "nothing was set"));
    for body in ["", "[]", "{", "1"] {
        let expected = if body.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        assert_eq!(control(&simulator, Method::PATCH, path, body).await.0, expected, "{body}");
    }
    assert_eq!(control(&simulator, Method::DELETE, path, "").await, (StatusCode::OK, defaults));
}

#[tokio::test]
async fn json_labelled_as_a_form_by_curl_is_accepted() {
    let (simulator, _) = simulator().await;
    let url = simulator.api_url().join("/simulator/switches").unwrap();
    for (method, body, set) in
        [(Method::PATCH, r#"{"deny_at_scan": true}"#, true), (Method::POST, r#"{"deny_at_scan": false}"#, false)]
    {
        assert_eq!(send(method, url.clone(), &[FORM], body).await.status, StatusCode::OK, "{body}");
        simulator.switches(|switches| assert_eq!(switches.deny_at_scan, set));
    }
}

#[tokio::test]
async fn the_clock_advances_and_tokens_are_revoked() {
    let (simulator, clock) = simulator().await;
    let code = code_of(&simulator, "u1001").await;
    let token = token_of(&simulator, SECRET).await;
    let before = clock.now();
    let (status, _) = control(&simulator, Method::POST, "/simulator/clock", r#"{"advance_seconds": 300}"#).await;
    assert_eq!(status, StatusCode::OK);
    assert!(before.until(clock.now()) >= Duration::from_secs(300));
    let query = [("access_token", token.as_str()), ("code", &code)];
    assert_eq!(errcode(&simulator, path::USER_INFO, &query).await, 40029);
    for body in
        ["{}", r#"{"advance_seconds": -1}"#, r#"{"advance_seconds": 999999999999}"#, r#"{"advance_seconds": "1"}"#]
    {
        let (status, answer) = control(&simulator, Method::POST, "/simulator/clock", body).await;
        assert_eq!(
            (status, &answer["faults"][0]["switch"]),
            (StatusCode::BAD_REQUEST, &json!("advance_seconds")),
            "{body}"
        );
    }
    control(&simulator, Method::POST, "/simulator/tokens/revoke", "").await;
    assert_eq!(errcode(&simulator, path::USER_INFO, &query).await, 40014);
}

#[tokio::test]
async fn calls_are_counted_by_path() {
    let (simulator, _) = simulator().await;
    token_of(&simulator, SECRET).await;
    code_of(&simulator, "u1001").await;
    code_of(&simulator, "u1001").await;
    let (_, calls) = control(&simulator, Method::GET, "/simulator/calls", "").await;
    assert_eq!(calls, json!({ path::TOKEN: 1, path::AUTHORIZE: 2 }));
}

#[tokio::test]
async fn the_forms_of_the_control_page_set_switches() {
    let (simulator, _) = simulator().await;
    let submit =
        async |path: &str, body: &str| send(Method::POST, simulator.api_url().join(path).unwrap(), &[FORM], body).await;
    let table = [
        ("name=client_only&value=true", "client_only", json!(true)),
        (
            "name=busy&value=%7B%22*%22%3A2%2C%22%2Fcgi-bin%2Fgettoken%22%3A1%7D",
            "busy",
            json!({ "*": 2, "/cgi-bin/gettoken": 1 }),
        ),
        ("name=busy&value=%7B%22*%22%3A3%7D", "busy", json!({ "*": 3 })),
        ("name=busy&value=", "busy", json!({})),
        ("name=stale_token_errcode&value=42001", "stale_token_errcode", json!(42001)),
        ("name=stale_token_errcode&value=null", "stale_token_errcode", json!(null)),
    ];
    for (body, name, expected) in table {
        let seen = submit("/simulator/switches", body).await;
        assert_eq!((seen.status, seen.location()), (StatusCode::SEE_OTHER, path::CONTROL), "{body}");
        let (_, switches) = control(&simulator, Method::GET, "/simulator/switches", "").await;
        assert_eq!(switches[name], expected, "{body}");
    }
    let page = open(simulator.control_url()).await;
    assert!(page.text.contains("class=\"switch set\""), "a changed switch is marked");
    let refused = submit("/simulator/switches", "name=busy&value=often").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text.contains("role=\"alert\"") && refused.text.contains("<strong>busy</strong>"));

    for (path, body) in
        [("/simulator/switches/reset", ""), ("/simulator/clock", "advance_seconds=5"), ("/simulator/tokens/revoke", "")]
    {
        assert_eq!(submit(path, body).await.status, StatusCode::SEE_OTHER, "{path}");
    }
    simulator.switches(|switches| assert_eq!(*switches, Switches::default()));
}

#[tokio::test]
async fn a_foreign_origin_is_rejected() {
    let (simulator, _) = simulator().await;
    let own = format!("http://{}", simulator.address());
    let table = [
        ("another site", "https://evil.example", StatusCode::FORBIDDEN),
        ("another port", "http://127.0.0.1:1", StatusCode::FORBIDDEN),
        ("an opaque origin", "null", StatusCode::FORBIDDEN),
        ("its own page", &own, StatusCode::SEE_OTHER),
    ];
    for (case, origin, expected) in table {
        for path in ["/simulator/switches/reset", "/simulator/tokens/revoke"] {
            let url = simulator.api_url().join(path).unwrap();
            assert_eq!(send(Method::POST, url, &[FORM, ("origin", origin)], "").await.status, expected, "{case}");
        }
    }
}

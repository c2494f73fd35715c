//! /api/dev/*: sign-in without the platform, only in development mode.

use crate::support::*;

#[tokio::test]
async fn dev_login_signs_in_any_employee() {
    let desk = Gateway::start().await;
    for employee in ["u1001", "a2001", "s3001", "c4001", "m5001"] {
        let response = desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": employee })).await;
        let data = response.expect_code(0).data();
        assert_eq!((&data["employee_id"], &data["corp_id"]), (&json!(employee), &json!("wwdemo")));
        assert_eq!((&data["login_method"], &data["login_source"]), (&json!("dev"), &json!("dev")));
        assert_eq!(data["token_type"], "Bearer");
        desk.with_token(data["token"].as_str().expect("a token")).get("/api/desk/x").await.expect_status(200);
    }
}

#[tokio::test]
async fn development_directory_has_the_demo_employees() {
    let desk = Gateway::start().await;
    let data = desk.anonymous().get("/api/dev/users").await.expect_code(0).data().to_string();
    for employee in ["u1001", "a2001", "s3001", "c4001", "m5001", "n6001"] {
        assert!(data.contains(&format!("\"{employee}\"")), "{employee} is missing in {data}");
    }
    desk.anonymous().get("/api/dev/health").await.expect_code(0);
    assert_eq!(desk.metric("deskgate_development_mode", &[]).await, 1.0);
}

#[tokio::test]
async fn development_mode_shows_in_log_ready_and_metrics() {
    let desk = Gateway::start().await;
    desk.wait_for_log(&["WARN", "development mode"]).await;
    assert_eq!(desk.anonymous().get("/api/ready").await.expect_code(0).data()["development"], true);
    assert_eq!(desk.metric("deskgate_development_mode", &[]).await, 1.0);
    let desk = Gateway::setup().production().start().await;
    assert!(!desk.logs().contains("development mode"), "{}", desk.logs());
    assert_eq!(desk.anonymous().get("/api/ready").await.expect_code(0).data()["development"], false);
    assert_eq!(desk.metric("deskgate_development_mode", &[]).await, 0.0);
}

#[tokio::test]
async fn dev_login_refuses_unknown_employees() {
    let desk = Gateway::start().await;
    for employee in ["u9999", "", "U1001", "' OR '1'='1"] {
        let response = desk.anonymous().post_json("/api/dev/login", &json!({ "employee_id": employee })).await;
        assert_eq!(response.code(), 1003, "{employee}");
    }
    for body in [json!({}), json!({ "employee_id": 1 }), json!([])] {
        desk.anonymous().post_json("/api/dev/login", &body).await.expect_code(1400);
    }
}

#[tokio::test]
async fn dev_routes_are_1003_outside_development_mode() {
    let desk = Gateway::setup().production().start().await;
    let anonymous = desk.anonymous();
    anonymous.post_json("/api/dev/login", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
    anonymous.post_body("/api/dev/login", "text/plain", b"junk").await.expect_code(1003);
    anonymous.get("/api/dev/users").await.expect_code(1003);
    anonymous.get("/api/dev/health").await.expect_code(1003);
    for path in ["/api/dev/login", "/api/dev/users", "/api/dev/health"] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get"] {
            let response = anonymous.send(method, path, &[], b"").await;
            assert_eq!(response.code(), 1003, "{method} {path}: {}", response.describe());
            assert_eq!((response.status, response.header("allow")), (403, None), "{method} {path}");
        }
        anonymous.send("HEAD", path, &[], b"").await.expect_status(403);
    }
    anonymous.get("/api/dev/nothing").await.expect_code(1404);
    assert_eq!(desk.metric("deskgate_development_mode", &[]).await, 0.0);
    anonymous.post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await.expect_code(1003);
}

#[tokio::test]
async fn development_mode_starts_only_on_loopback() {
    for (key, value) in [("server.listen", "[\"0.0.0.0:0\"]"), ("server.admin_listen", "0.0.0.0:0")] {
        let refused = Gateway::setup().set(key, value).try_start().await.err();
        let refused = refused.unwrap_or_else(|| panic!("{key} = {value} was accepted"));
        assert_eq!(refused.status.code(), Some(1), "{key}");
        assert!(refused.stderr.contains("server.development"), "{key}: {}", refused.stderr);
    }
}

#[tokio::test]
async fn the_simulated_platform_needs_development_mode() {
    let refused = Gateway::setup().set("server.development", "false").try_start().await.err().expect("a refusal");
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("platform.kind"), "{}", refused.stderr);
}

#[tokio::test]
async fn demo_starts_only_on_loopback() {
    let refused = Gateway::try_demo(&["--listen", "0.0.0.0:0"]).await.err().expect("a refusal");
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    for word in ["server.development", "loopback"] {
        assert!(refused.stderr.contains(word), "{word} is missing in {}", refused.stderr);
    }
}

#[tokio::test]
async fn demo_says_when_its_port_is_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let desk = Gateway::try_demo(&["--listen", &address]).await.unwrap_or_else(|refused| panic!("{}", refused.stderr));
    let warning =
        format!("warning: {address} is in use or not available; the demo listens on {} instead", desk.address());
    desk.wait_for_log(&[&warning]).await;
    assert_ne!(desk.address().to_string(), address);
}

#[cfg(unix)]
#[tokio::test]
async fn demo_data_directory_is_new_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let mut killed = Gateway::demo_without_data_dir().await;
    let mut stopped = Gateway::demo_without_data_dir().await;
    let names = [&killed, &stopped].map(|desk| {
        let folders: Vec<_> = std::fs::read_dir(desk.temporary_folder())
            .expect("the temporary folder")
            .map(|entry| entry.expect("an entry"))
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("deskgate-demo-"))
            .collect();
        let [folder] = folders.as_slice() else { panic!("expected one folder: {folders:?}") };
        let mode = folder.metadata().expect("its mode").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{mode:o}");
        let name = folder.file_name().into_string().expect("a name");
        assert_eq!(name.len(), "deskgate-demo-".len() + 22, "{name}: the suffix is not random enough");
        folder.path()
    });
    assert_ne!(names[0].file_name(), names[1].file_name());
    killed.sigkill();
    stopped.terminate().await;
    assert!(names[0].exists(), "a killed demo leaves its directory");
    assert!(!names[1].exists(), "{} still exists", names[1].display());
}

#[tokio::test]
async fn command_line_overrides_demo_defaults() {
    for (case, more, code) in [
        ("the demo's default", vec![], 0),
        ("a value from the command line", vec!["--set", "bind.proof=platform"], 1003),
    ] {
        let args = [vec!["--listen", "127.0.0.1:0"], more].concat();
        let desk = Gateway::try_demo(&args).await.unwrap_or_else(|refused| panic!("{case}: {}", refused.stderr));
        let response = desk.anonymous().post_json("/api/auth/bind", &json!({ "employee_id": "u1001" })).await;
        assert_eq!(response.code(), code, "{case}: {}", response.describe());
    }
}

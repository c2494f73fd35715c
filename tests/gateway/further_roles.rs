//! Roles beside the five: a rule file declares them, operators grant them, employees switch to them, and upstreams see them.

use crate::support::*;

const RULES: &str = r#"
# Declares the role; what it does not grant is denied.
[matrix.auditor]
conversations = { read = "all" }

[[rule]]
name = "audits"
path = "/audits/{*rest}"
upstream = "helpdesk"
roles = ["auditor"]

[[rule]]
name = "audited conversations"
path = "/audited/{*rest}"
upstream = "helpdesk"
access = "conversations:read"

[[rule]]
name = "audited approvals"
path = "/approvals/{*rest}"
upstream = "helpdesk"
access = "approvals:read"

[matrix.user]
approvals = { read = "own" }

[[case]]
request = { path = "/audits/x", role = "auditor" }
expect = { allow = true }

[[case]]
request = { path = "/audits/x", role = "user", roles = ["user", "auditor"] }
expect = { deny = 1003 }
"#;

#[tokio::test]
async fn role_that_a_rule_file_declares_can_be_granted_switched_to_and_seen_by_the_upstream() {
    let desk = Gateway::setup().more_rules(RULES).start().await;
    let granted = desk.command(&["role", "grant", "u1001", "auditor"]).await.expect_success();
    assert!(granted.contains("`[matrix.auditor]`"), "{granted}");
    let xiaoming = desk.sign_in("u1001").await;
    let me = xiaoming.get("/api/auth/me").await.expect_code(0).data();
    assert_eq!((&me["roles"], &me["current_role"]), (&json!(["user", "auditor"]), &json!("user")));
    xiaoming.get("/audits/x").await.expect_code(1003);

    xiaoming.post_json("/api/auth/switch-role", &json!({ "role": "auditor" })).await.expect_code(0);
    xiaoming.get("/audits/x").await.expect_status(200);
    let seen = desk.upstream.last_request();
    assert_eq!(seen.header("x-deskgate-current-role"), Some("auditor"));
    assert_eq!(seen.header("x-deskgate-roles"), Some("user,auditor"));
    xiaoming.get("/audited/x").await.expect_status(200);
    assert_eq!(desk.upstream.last_request().header("x-deskgate-scope"), Some("all"));
    xiaoming.get("/approvals/x").await.expect_code(1003);

    desk.command(&["role", "take", "u1001", "auditor"]).await.expect_success();
    xiaoming.get("/audits/x").await.expect_code(1003);
    xiaoming.post_json("/api/auth/switch-role", &json!({ "role": "auditor" })).await.expect_code(1003);
}

#[tokio::test]
async fn rule_with_a_role_that_no_file_declares_is_refused() {
    let undeclared = RULES.replace("[matrix.auditor]\nconversations = { read = \"all\" }", "");
    let files = Gateway::setup().more_rules(&undeclared).write_files().await;
    let output = files.command(&["check"]).await;
    assert_eq!(output.status.code(), Some(1));
    let text = output.output_text();
    assert!(text.contains("roles: `auditor` is not one of user, agent, supervisor, security, admin"), "{text}");
    assert!(text.contains("`[matrix.auditor]` declares it"), "{text}");
}

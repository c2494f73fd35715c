//! `deskgate check` runs all stages and reports the faults of configuration, keys, certificate, rules and cases
//! together.

use std::process::Output;

use crate::support::*;

const FAULTY_RULE: &str = "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"nowhere\"\npublic = true\n";

const FAILING_CASE: &str = "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"helpdesk\"\npublic = true\n\n\
    [[case]]\nrequest = { path = \"/a\" }\nexpect = { deny = 1003 }\n";

/// The stderr of a check; fails unless the check exited with 1.
fn expect_failure(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr
}

#[tokio::test]
async fn faults_of_all_stages_are_reported_together() {
    let files = Gateway::setup().rules(FAULTY_RULE).write_files().await;
    let config = files.config();
    let folder = config.parent().expect("a folder");
    let keys = folder.join("data").join("keys");
    std::fs::create_dir_all(&keys).expect("the key directory");
    std::fs::write(keys.join("eddsa-1-a.pem"), "no key").expect("a key file");
    std::fs::write(folder.join("otp.key"), "too short").expect("a key file");
    let tls = "server.tls={ cert_file = \"missing.crt\", key_file = \"missing.key\" }";
    let otp = format!("otp.key_file={}", folder.join("otp.key").display());

    let mut arguments = vec!["check"];
    for change in ["token.cache=0", "bind.proof=perhaps", tls, &otp] {
        arguments.extend(["--set", change]);
    }
    let stderr = expect_failure(&files.command(&arguments).await);
    let rules = format!("{}:4: ", files.rules_file().display());
    for (stage, expected) in [
        ("a value", "bind.proof: unknown variant `perhaps`"),
        ("a range", "token.cache: 0 would cache no session"),
        ("a signing key", "eddsa-1-a.pem: "),
        ("a certificate", "server.tls: missing.crt and missing.key: "),
        ("an encryption key", "otp.key: must hold 32 bytes in base64"),
        ("a rule", rules.as_str()),
    ] {
        assert!(stderr.contains(expected), "{stage}: {expected:?} is missing in {stderr}");
    }
}

#[tokio::test]
async fn failing_cases_are_reported_with_configuration_faults() {
    let files = Gateway::setup().rules(FAILING_CASE).write_files().await;
    let stderr = expect_failure(&files.command(&["check", "--set", "bind.proof=perhaps"]).await);
    assert!(stderr.contains("bind.proof: "), "{stderr}");
    assert!(stderr.contains("the case fails"), "{stderr}");
}

#[tokio::test]
async fn rules_are_not_checked_without_a_valid_rules_dir() {
    let files = Gateway::setup().write_files().await;
    let stderr = expect_failure(&files.command(&["check", "--set", "rules.dir=[1]"]).await);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[tokio::test]
async fn a_valid_configuration_is_summarised_with_correct_plurals() {
    let case = "\n[[case]]\nrequest = { path = \"/a\" }\nexpect = { allow = true }\n";
    let rule = "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"helpdesk\"\npublic = true\n";
    for (rules, expected) in [
        (format!("{rule}{case}"), "ok: 1 upstream, 1 rule, 1 case\n"),
        (
            format!("{rule}{case}{case}{}", rule.replace("\"a\"", "\"b\"").replace("/a", "/b")),
            "1 upstream, 2 rules, 2 cases\n",
        ),
    ] {
        let files = Gateway::setup().rules(&rules).write_files().await;
        let output = files.command(&["check"]).await;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(stdout.ends_with(expected), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn a_bare_address_on_the_command_line_sets_a_list() {
    let desk = Gateway::setup().set("server.listen", "127.0.0.1:0").start().await;
    desk.anonymous().get("/api/ready").await.expect_code(0);
}

#[tokio::test]
async fn faults_of_named_files_have_the_line_of_their_setting() {
    let files = Gateway::setup().write_files().await;
    let mut text = std::fs::read_to_string(files.config()).expect("the file");
    text.push_str("\n[[server.listeners]]\naddress = \"127.0.0.1:0\"\ntls = true\n");
    text.push_str("\n[[server.certificates]]\ncert_file = \"/no/such.crt\"\nkey_file = \"/no/such.key\"\n");
    text.push_str("\n[otp]\nkey_file = \"/no/otp.key\"\n");
    std::fs::write(files.config(), &text).expect("the file");
    let line_of = |part: &str| text.lines().position(|line| line.contains(part)).expect("a line") + 1;
    let place = |part: &str| format!("{}:{}", files.config().display(), line_of(part));

    let stderr = expect_failure(&files.command(&["check"]).await);
    let certificate = format!("{}: server.certificates[0]: /no/such.crt", place("[[server.certificates]]"));
    let key = format!("{}: otp.key_file: ", place("/no/otp.key"));
    assert!(stderr.contains(&certificate) && stderr.contains(&key), "{stderr}");
    let stderr = expect_failure(&files.command(&["serve"]).await);
    assert!(stderr.contains(&certificate), "{stderr}");
}

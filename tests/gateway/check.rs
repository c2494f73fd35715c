//! `deskgate check` and start-up: all faults are reported at once, with file and line, before any listener opens.

use crate::support::*;

#[tokio::test]
async fn valid_files_pass() {
    let files = Gateway::setup().write_files().await;
    let output = files.command(&["check"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn every_config_fault_is_reported_with_its_location() {
    let files = Gateway::setup().write_files().await;
    let mut text = std::fs::read_to_string(files.config()).expect("the file");
    text.push_str("\n[token]\nlifetime = \"soon\"\nlifetme = \"8h\"\n\n[bind]\nproof = \"perhaps\"\n");
    std::fs::write(files.config(), &text).expect("the file");
    let line_of = |part: &str| text.lines().position(|line| line.contains(part)).expect("a line") + 1;

    for command in ["check", "serve"] {
        let output = files.command(&[command]).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command}: {stderr}");
        for (key, part) in [("token.lifetime", "lifetime ="), ("token.lifetme", "lifetme"), ("bind.proof", "perhaps")] {
            let location = format!("{}:{}: {key}", files.config().display(), line_of(part));
            assert!(stderr.contains(&location), "{command}: {location} is missing in {stderr}");
        }
    }
}

#[tokio::test]
async fn rule_faults_are_reported_with_their_location() {
    for (case, rule) in [
        ("an unknown upstream", "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"nowhere\"\npublic = true\n"),
        ("no access", "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"helpdesk\"\n"),
        (
            "two kinds of access",
            "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"helpdesk\"\npublic = true\nsigned_in = true\n",
        ),
        (
            "an unknown key",
            "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"helpdesk\"\npublic = true\npublik = true\n",
        ),
        (
            "an unknown assertion",
            "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"helpdesk\"\npublic = true\nassertion = \"always\"\n",
        ),
        ("an invalid path", "[[rule]]\nname = \"a\"\npath = \"/a/{\"\nupstream = \"helpdesk\"\npublic = true\n"),
        ("no leading slash", "[[rule]]\nname = \"a\"\npath = \"a\"\nupstream = \"helpdesk\"\npublic = true\n"),
        (
            "the same name twice",
            "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"helpdesk\"\npublic = true\n\
             [[rule]]\nname = \"a\"\npath = \"/b\"\nupstream = \"helpdesk\"\npublic = true\n",
        ),
        (
            "the same path twice",
            "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"helpdesk\"\npublic = true\n\
             [[rule]]\nname = \"b\"\npath = \"/a\"\nupstream = \"helpdesk\"\npublic = true\n",
        ),
        ("invalid TOML", "[[rule\n"),
    ] {
        let files = Gateway::setup().rules(rule).write_files().await;
        let output = files.command(&["check"]).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{case}: {stderr}");
        let location = format!("{}:", files.rules_file().display());
        let after = stderr.split_once(&location).map(|(_, after)| after).unwrap_or_default();
        assert!(after.starts_with(|first: char| first.is_ascii_digit()), "{case}: file and line in {stderr}");
    }
}

#[tokio::test]
async fn check_warns_about_literals_beside_a_tail_of_an_undeclared_upstream() {
    let literal =
        "[[rule]]\nname = \"purge\"\npath = \"/public/jobs/purge\"\nupstream = \"helpdesk\"\nroles = [\"admin\"]\n";
    let digits = literal.replace("jobs/purge", "{id}/7");
    for (case, rules, path_case, warns) in [
        ("undeclared", literal, None, true),
        ("declared", literal, Some("sensitive"), false),
        ("ignores case", literal, Some("insensitive"), false),
        ("no letters", &digits, None, false),
        ("no literal", "", None, false),
    ] {
        expect_case_warning(case, rules, path_case, warns.then_some(["`purge`", "`anyone`"])).await;
    }
}

#[tokio::test]
async fn check_warns_about_literals_beside_a_parameter_of_an_undeclared_upstream() {
    let literal = "[[rule]]\nname = \"purge\"\npath = \"/users/admin\"\nupstream = \"helpdesk\"\nroles = [\"admin\"]\n";
    let parameter = "[[rule]]\nname = \"profile\"\npath = \"/users/{id}\"\nupstream = \"helpdesk\"\nsigned_in = true\n";
    let rules = format!("{literal}{parameter}");
    let deeper = rules.replace("/users/admin", "/users/{id}/keys").replace("/users/{id}\"", "/users/{name}/{*rest}\"");
    let warned = Some(["`purge`", "`profile`"]);
    expect_case_warning("beside a parameter", &rules, None, warned).await;
    expect_case_warning("behind a parameter", &deeper, None, warned).await;
    expect_case_warning("declared", &rules, Some("sensitive"), None).await;
    expect_case_warning("ignores case", &rules, Some("insensitive"), None).await;
    expect_case_warning("alone", literal, None, None).await;
}

/// Expects `check` to warn about the two rules, or not at all.
async fn expect_case_warning(case: &str, rules: &str, path_case: Option<&str>, warned: Option<[&str; 2]>) {
    let setup = Gateway::setup().more_rules(rules);
    let setup = match path_case {
        Some(word) => setup.toml(&format!("[upstreams.helpdesk]\npath_case = \"{word}\"")),
        None => setup,
    };
    let output = setup.write_files().await.command(&["check"]).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{case}: {stderr}");
    match warned {
        Some(names) => {
            let words = ["warning: ", "upstreams.helpdesk.path_case"].into_iter().chain(names);
            words.for_each(|word| assert!(stderr.contains(word), "{case}: {word} in {stderr}"));
        }
        None => assert!(stderr.is_empty(), "{case}: {stderr}"),
    }
}

#[tokio::test]
async fn check_writes_no_files() {
    let files = Gateway::setup().write_files().await;
    files.command(&["check"]).await;
    let data = files.config().with_file_name("data");
    assert!(!data.exists(), "`check` created the data directory");
}

#[tokio::test]
async fn command_line_setting_overrides_the_file() {
    let desk = Gateway::setup().toml("[ticket]\nlifetime = \"60s\"").set("ticket.lifetime", "90s").start().await;
    let data = desk.anonymous().get("/api/auth/qrcode").await.expect_code(0).data();
    assert!((61..=90).contains(&data["expires_in"].as_i64().expect("seconds")), "{data}");
}

#[tokio::test]
async fn unknown_command_line_setting_is_refused() {
    let refused = Gateway::setup().set("token.lifetme", "8h").try_start().await.err().expect("a refusal");
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("token.lifetme"), "{}", refused.stderr);
}

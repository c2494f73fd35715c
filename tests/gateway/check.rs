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
    let second = literal.replace("purge", "grant").replace("/users/admin", "/users/root");
    expect_case_warning("two rules", &format!("{rules}{second}"), None, Some(["`purge`", "`grant`"])).await;
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
        None => assert!(!stderr.contains("path_case"), "{case}: {stderr}"),
    }
}

/// What `check` prints on standard error, if it succeeds.
async fn warnings_of(setup: Setup) -> String {
    let output = setup.write_files().await.command(&["check"]).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    stderr
}

#[tokio::test]
async fn start_and_check_warn_about_proxies_so_wide_that_clients_are_among_them() {
    let trusting = |network: &str, client_address: &str| {
        let settings = format!("trusted_proxies = [\"{network}\"]\nclient_address = \"{client_address}\"");
        Gateway::setup().toml(&format!("[server]\n{settings}"))
    };
    for client_address in ["first", "rightmost"] {
        for network in ["0.0.0.0/0", "128.0.0.0/1", "8.0.0.0/7", "::/0", "2000::/3", "8000::/1"] {
            let stderr = warnings_of(trusting(network, client_address)).await;
            let words = ["warning: server.trusted_proxies", network, "choose"];
            assert!(words.iter().all(|word| stderr.contains(word)), "{network}, {client_address}: {stderr}");
        }
    }
    for network in ["10.0.0.0/8", "127.0.0.0/8", "203.0.113.0/24", "fc00::/7", "fd00::/8", "fe80::/10", "2001::/16"] {
        let stderr = warnings_of(trusting(network, "rightmost")).await;
        assert!(!stderr.contains("trusted_proxies"), "{network}: {stderr}");
    }
    let desk = trusting("0.0.0.0/0", "rightmost").start().await;
    desk.wait_for_log(&["WARN", "server.trusted_proxies", "0.0.0.0/0"]).await;
}

#[tokio::test]
async fn start_and_check_warn_about_the_same_unsafe_settings() {
    if skipped_on_postgres("a private store beside a shared directory has a warning of its own") {
        return;
    }
    for (settings, warning) in [
        ("[bind]\nproof = \"none\"", "bind.proof = \"none\""),
        ("[qr]\nconfirm = \"auto\"", "qr.confirm = \"auto\""),
        ("[oauth2]\nrequire_flow_cookie = false", "oauth2.require_flow_cookie = false"),
    ] {
        let stderr = warnings_of(Gateway::setup().production().toml(settings)).await;
        assert!(stderr.contains(&format!("warning: {warning}")), "{stderr}");
        let desk = Gateway::setup().production().toml(settings).start().await;
        desk.wait_for_log(&["WARN", &warning.replace('"', "\\\"")]).await;
        let stderr = warnings_of(Gateway::setup().toml(settings)).await;
        assert!(!stderr.contains(warning), "in development: {stderr}");
    }
    let stderr = warnings_of(Gateway::setup()).await;
    assert!(stderr.contains("warning: development mode (server.development = true)"), "{stderr}");
    Gateway::start().await.wait_for_log(&["WARN", "server.development = true"]).await;
    let few = Gateway::setup().production().toml("[limits]\nconnections = 100");
    assert_eq!(warnings_of(few).await, "");
}

#[tokio::test]
async fn check_warns_about_shadow_rules_that_let_anonymous_requests_through() {
    let rule = |name: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"helpdesk\"\nsigned_in = true\n\
             mode = \"shadow\"\nshadow_anonymous = true\n"
        )
    };
    let stderr = warnings_of(Gateway::setup().more_rules(&rule("trial"))).await;
    let words = ["warning: shadow_anonymous = true", "`trial` (test.toml:"];
    assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    let many: String = ["one", "two", "three", "four", "five"].map(rule).concat();
    let stderr = warnings_of(Gateway::setup().more_rules(&many)).await;
    let words = ["`one` (", "`two` (", "`three` (", "and 2 more"];
    assert!(words.iter().all(|word| stderr.contains(word)) && !stderr.contains("`four`"), "{stderr}");
    let stderr = warnings_of(Gateway::setup().more_rules(&rule("trial").replace("shadow_anonymous = true", ""))).await;
    assert!(!stderr.contains("shadow"), "{stderr}");
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

#[tokio::test]
async fn relative_paths_start_at_the_configuration_file_whatever_the_working_directory_is() {
    let files = Gateway::setup().toml("[server]\ndata_dir = \"data\"\n[rules]\ndir = \"rules\"\n").write_files().await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let check = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_deskgate"));
        command.args(["check", "--config"]).arg(files.config()).args(arguments).current_dir(elsewhere.path());
        command.output().expect("the program")
    };
    check(&[]).expect_success();
    let output = check(&["--set", "rules.dir=rules"]);
    assert_eq!(output.status.code(), Some(1), "a path of --set starts at the working directory");
    std::fs::create_dir(elsewhere.path().join("rules")).expect("a folder");
    std::fs::copy(files.rules_file(), elsewhere.path().join("rules/test.toml")).expect("rules");
    check(&["--set", "rules.dir=rules"]).expect_success();
}

/// What each gateway of `deploy/compose.yaml` is started with. No quotes are stripped from lists, as they are from a string.
fn compose_commands() -> Vec<Vec<String>> {
    let file =
        include_str!("../../deploy/compose.yaml").lines().filter(|line| line.trim_start().starts_with("gateway-"));
    let list = |line: &str| {
        line.split_once("command: [").and_then(|(_, rest)| rest.rsplit_once("] }")).map(|(list, _)| list.to_owned())
    };
    let commands = file.map(|line| list(line).expect("a list"));
    commands.map(|list| list.split(", ").map(|word| word.trim_matches('\'').to_owned()).collect()).collect()
}

#[tokio::test]
async fn gateways_of_the_compose_file_have_valid_settings() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    let program = || std::process::Command::new(env!("CARGO_BIN_EXE_deskgate"));
    program().args(["secret", "new"]).arg(&secret).output().expect("the program").expect_success();
    let commands = compose_commands();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let [serve, config, _, settings @ ..] = &command[..] else { panic!("{command:?}") };
        assert_eq!((serve.as_str(), config.as_str()), ("serve", "--config"));
        let mut check = program();
        check.args(["check", "--config"]).arg(root.join("deploy/compose/deskgate.toml")).args(settings);
        check.args(["--set", &format!("server.secret_file={}", secret.display())]);
        check.args(["--set", &format!("rules.dir={}", root.join("lua-free-rules").display())]);
        check.output().expect("the program").expect_success();
    }
}

#[tokio::test]
async fn check_warns_about_names_that_do_not_resolve_and_too_few_open_files() {
    let files = Gateway::setup().toml("[upstreams.mail]\naddresses = [\"mail.invalid:80\"]").write_files().await;
    let program = env!("CARGO_BIN_EXE_deskgate");
    let script = format!("ulimit -n 128; exec {program} check --config {}", files.config().display());
    let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "warnings are no faults: {stderr}");
    for part in ["upstreams.mail: mail.invalid does not resolve: ", "the limit on open files is 128", "(100000)"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let files = Gateway::setup().toml("[limits]\nconnections = 4\n").write_files().await;
    let stderr = String::from_utf8_lossy(&files.command(&["check"]).await.stderr).into_owned();
    assert!(!stderr.contains("resolve") && !stderr.contains("open files"), "{stderr}");
}

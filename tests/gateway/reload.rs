//! SIGHUP: reloads configuration, rules and keys; an invalid file keeps the current ones.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::support::*;

const NEW_RULE: &str = r#"
[[rule]]
name = "new"
path = "/new/{*rest}"
upstream = "helpdesk"
public = true
"#;

fn append_rules(desk: &Gateway, text: &str) {
    let file = desk.rules_file();
    let old = std::fs::read_to_string(&file).expect("the rules");
    std::fs::write(&file, format!("{old}{text}")).expect("new rules");
    desk.signal("HUP");
}

async fn wait_for_status(desk: &Gateway, target: &str, status: u16) {
    eventually(&format!("{status} for {target}"), || async {
        (desk.anonymous().get(target).await.status == status).then_some(())
    })
    .await;
}

async fn wait_for_metric(desk: &Gateway, name: &str, value: f64) {
    eventually(&format!("{name} {value}"), || async { (desk.metric(name, &[]).await == value).then_some(()) }).await;
}

#[tokio::test]
async fn reload_adds_a_rule() {
    let desk = Gateway::start().await;
    let before = desk.metric("deskgate_rules_loaded", &[]).await;
    desk.anonymous().get("/new/x").await.expect_code(1404);
    append_rules(&desk, NEW_RULE);
    wait_for_status(&desk, "/new/x", 200).await;
    assert_eq!(desk.metric("deskgate_rules_loaded", &[]).await, before + 1.0);
    assert_eq!(desk.metric("deskgate_config_reload_success", &[]).await, 1.0);
    desk.anonymous().get("/public/x").await.expect_status(200);
}

#[tokio::test]
async fn reload_that_waits_for_a_file_delays_no_request() {
    for threads in [1, 2] {
        let desk = Gateway::with(&format!("[server]\nthreads = {threads}\n")).await;
        let file = desk.config_file();
        let text = std::fs::read_to_string(&file).expect("the configuration");
        std::fs::remove_file(&file).expect("no configuration");
        mkfifo(&file, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
        desk.signal("HUP");
        let open = || OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&file).ok();
        let mut pipe = eventually("the gateway reads its configuration", || async { open() }).await;
        for _ in 0..10 {
            desk.anonymous().get("/public/x").await.expect_status(200);
        }
        assert!(!desk.logs().contains("reloaded"), "the reload has waited:\n{}", desk.logs());
        pipe.write_all(text.as_bytes()).expect("the gateway goes on");
        drop(pipe);
        desk.wait_for_log(&["reloaded"]).await;
    }
}

/// Replaces a text in the configuration file and sends SIGHUP.
fn change_config(desk: &Gateway, from: &str, to: &str) {
    let file = desk.config_file();
    let text = std::fs::read_to_string(&file).expect("the configuration");
    assert!(text.contains(from), "{from} is not in:\n{text}");
    std::fs::write(&file, text.replace(from, to)).expect("a new configuration");
    desk.signal("HUP");
}

#[tokio::test]
async fn reload_names_the_settings_that_take_a_restart() {
    let desk = Gateway::start().await;
    append_rules(&desk, NEW_RULE);
    desk.wait_for_log(&["reloaded"]).await;
    assert!(!desk.logs().contains("after a restart"), "{}", desk.logs());
    change_config(&desk, "[log]", "[token]\nlifetime = \"1m\"\n[limits]\nidle = \"5s\"\nheaders = 50\n[log]");
    desk.wait_for_log(&["WARN", "take effect after a restart: limits.idle, token.lifetime"]).await;
    desk.wait_for_log(&["reloaded", "limits.headers"]).await;
}

#[tokio::test]
async fn reload_applies_new_limits() {
    let desk = Gateway::with("[limits]\ntarget_bytes = 1000\nbody_bytes = 2000\n").await;
    let long = format!("/public/{}", "x".repeat(2000));
    desk.anonymous().get(&long).await.expect_code(1414);
    change_config(&desk, "target_bytes = 1000", "target_bytes = 4000");
    wait_for_status(&desk, &long, 200).await;
    change_config(&desk, "target_bytes = 4000", "target_bytes = 4000\nmemory = 1048576");
    wait_for_status(&desk, "/public/x", 503).await;
    change_config(&desk, "memory = 1048576", "memory = 0");
    wait_for_status(&desk, "/public/x", 200).await;
    change_config(&desk, "memory = 0", "connections = 2");
    desk.wait_for_log(&["reloaded", "limits.connections"]).await;
    let _others = (desk.connect().await, desk.connect().await);
    eventually("a connection that waits", || async {
        let mut third = desk.connect().await;
        third.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
        tokio::time::timeout(std::time::Duration::from_millis(200), third.response()).await.is_err().then_some(())
    })
    .await;
    change_config(&desk, "connections = 2", "connections = 50");
    wait_for_status(&desk, "/public/x", 200).await;
}

#[tokio::test]
async fn reload_applies_new_changed_and_removed_upstreams() {
    let desk = Gateway::start().await;
    let (other, moved) = (Upstream::start().await, Upstream::start().await);
    let before = desk.upstream.address().to_string();
    desk.anonymous().get("/public/x").await.expect_status(200);
    let rule = NEW_RULE.replace("helpdesk", "another");
    let rules = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    std::fs::write(desk.rules_file(), format!("{rules}{rule}")).expect("rules");
    let section = format!("[upstreams.another]\naddresses = [\"{}\"]\n[log]", other.address());
    change_config(&desk, "[log]", &section);
    wait_for_status(&desk, "/new/x", 200).await;
    desk.wait_for_log(&["reloaded", "upstreams.another.addresses"]).await;
    assert_eq!(other.only_request().target, "/new/x", "the new upstream answers");
    change_config(&desk, &before, &moved.address().to_string());
    eventually("a request at the new address", || async {
        desk.anonymous().get("/public/moved").await.expect_status(200);
        moved.requests().iter().any(|request| request.target == "/public/moved").then_some(())
    })
    .await;
    std::fs::write(desk.rules_file(), &rules).expect("rules without the upstream");
    change_config(&desk, &section, "[log]");
    wait_for_status(&desk, "/new/x", 404).await;
    desk.anonymous().get("/public/x").await.expect_status(200);
    assert!(!desk.logs().contains("after a restart"), "{}", desk.logs());
}

#[tokio::test]
async fn reload_reads_the_rules_of_another_folder() {
    let desk = Gateway::start().await;
    let folder = desk.rules_file().parent().expect("a folder").with_file_name("other-rules");
    std::fs::create_dir(&folder).expect("a folder");
    let text = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    std::fs::write(folder.join("all.toml"), format!("{text}{NEW_RULE}")).expect("rules");
    let before = desk.rules_file().parent().expect("a folder").display().to_string();
    change_config(&desk, &before, &folder.display().to_string());
    wait_for_status(&desk, "/new/x", 200).await;
}

#[tokio::test]
async fn reload_with_an_invalid_configuration_changes_nothing() {
    let desk = Gateway::with("[limits]\ntarget_bytes = 1000\n").await;
    let long = format!("/public/{}", "x".repeat(2000));
    for (bad, line) in [
        ("target_bytes = 4000\nheaders = 1", "limits.headers: 1 is not between"),
        ("target_bytes = 4000\nnonsense = 1", "limits.nonsense: unknown field"),
        ("target_bytes = ", "deskgate.toml:"),
    ] {
        std::fs::write(desk.rules_file().with_file_name("another.toml"), NEW_RULE).expect("a second file");
        let good = std::fs::read_to_string(desk.config_file()).expect("the configuration");
        change_config(&desk, "target_bytes = 1000", bad);
        desk.wait_for_log(&["ERROR", "reload refused, nothing changed", line]).await;
        wait_for_metric(&desk, "deskgate_config_reload_success", 0.0).await;
        desk.anonymous().get(&long).await.expect_code(1414);
        desk.anonymous().get("/new/x").await.expect_code(1404);
        std::fs::write(desk.config_file(), good).expect("the configuration");
    }
    desk.signal("HUP");
    wait_for_status(&desk, "/new/x", 200).await;
    wait_for_metric(&desk, "deskgate_config_reload_success", 1.0).await;
}

#[tokio::test]
async fn reload_removes_a_rule() {
    let desk = Gateway::setup().more_rules(NEW_RULE).start().await;
    desk.anonymous().get("/new/x").await.expect_status(200);
    let file = desk.rules_file();
    let text = std::fs::read_to_string(&file).expect("the rules").replace(NEW_RULE, "");
    std::fs::write(&file, text).expect("new rules");
    desk.signal("HUP");
    wait_for_status(&desk, "/new/x", 404).await;
}

#[tokio::test]
async fn reload_applies_a_stricter_rule() {
    let desk = Gateway::setup().more_rules(NEW_RULE).start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/new/x").await.expect_status(200);
    let file = desk.rules_file();
    let stricter = NEW_RULE.replace("public = true", "roles = [\"admin\"]");
    let text = std::fs::read_to_string(&file).expect("the rules").replace(NEW_RULE, &stricter);
    std::fs::write(&file, text).expect("new rules");
    desk.signal("HUP");
    wait_for_status(&desk, "/new/x", 401).await;
    xiaoming.get("/new/x").await.expect_code(1003);
}

#[tokio::test]
async fn reload_reads_a_new_rule_file() {
    let desk = Gateway::start().await;
    std::fs::write(desk.rules_file().with_file_name("another.toml"), NEW_RULE).expect("a second file");
    desk.signal("HUP");
    wait_for_status(&desk, "/new/x", 200).await;
}

#[tokio::test]
async fn reload_with_an_invalid_file_keeps_the_old_rules() {
    for (case, text) in [
        ("no TOML", "\n[[rule]\nname = \n"),
        (
            "an unknown key",
            "\n[[rule]]\nname = \"bad\"\npath = \"/bad\"\nupstream = \"helpdesk\"\npublic = true\ncolour = \"red\"\n",
        ),
        ("an unknown upstream", "\n[[rule]]\nname = \"bad\"\npath = \"/bad\"\nupstream = \"nowhere\"\npublic = true\n"),
        (
            "a duplicate name",
            "\n[[rule]]\nname = \"anyone\"\npath = \"/bad\"\nupstream = \"helpdesk\"\npublic = true\n",
        ),
        ("no access condition", "\n[[rule]]\nname = \"bad\"\npath = \"/bad\"\nupstream = \"helpdesk\"\n"),
        ("an invalid path", "\n[[rule]]\nname = \"bad\"\npath = \"bad\"\nupstream = \"helpdesk\"\npublic = true\n"),
    ] {
        let desk = Gateway::start().await;
        assert_eq!(desk.metric("deskgate_config_reload_success", &[]).await, 1.0, "{case}");
        let rules = desk.metric("deskgate_rules_loaded", &[]).await;
        let good = std::fs::read_to_string(desk.rules_file()).expect("the rules");
        append_rules(&desk, &format!("{NEW_RULE}{text}"));
        wait_for_metric(&desk, "deskgate_config_reload_success", 0.0).await;
        desk.wait_for_log(&["test.toml"]).await;
        desk.anonymous().get("/new/x").await.expect_code(1404);
        desk.anonymous().get("/public/x").await.expect_status(200);
        desk.sign_in("u1001").await.get("/api/desk/x").await.expect_status(200);
        assert_eq!(desk.metric("deskgate_rules_loaded", &[]).await, rules, "{case}");

        std::fs::write(desk.rules_file(), format!("{good}{NEW_RULE}")).expect("good rules");
        desk.signal("HUP");
        wait_for_status(&desk, "/new/x", 200).await;
        wait_for_metric(&desk, "deskgate_config_reload_success", 1.0).await;
    }
}

#[tokio::test]
async fn reload_fails_no_request() {
    let desk = Gateway::start().await;
    let xiaoming = desk.sign_in("u1001").await;
    let mut socket = xiaoming.websocket("/ws/employee").await;
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let load = async |number: usize| {
        while !over.load(Ordering::SeqCst) {
            match number % 3 {
                0 => drop(xiaoming.get("/api/desk/x").await.expect_status(200)),
                1 => drop(desk.anonymous().get("/public/x").await.expect_status(200)),
                _ => drop(xiaoming.get("/api/admin-desk/x").await.expect_code(1003)),
            }
            served.fetch_add(1, Ordering::SeqCst);
        }
    };
    let good = std::fs::read_to_string(desk.rules_file()).expect("the rules");
    let reloads = async {
        for round in 0..20 {
            let target = format!("/round-{round}/x");
            let rule = NEW_RULE.replace("/new/", &format!("/round-{round}/"));
            std::fs::write(desk.rules_file(), format!("{good}{rule}")).expect("rules");
            desk.signal("HUP");
            wait_for_status(&desk, &target, 200).await;
            socket.echo("still here").await;
            if round % 4 == 0 {
                std::fs::write(desk.rules_file(), "[[rule]").expect("rules");
                desk.signal("HUP");
                wait_for_metric(&desk, "deskgate_config_reload_success", 0.0).await;
            }
        }
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(reloads, load(0), load(1), load(2), load(3));
    assert!(served.load(Ordering::SeqCst) > 50, "{} requests", served.load(Ordering::SeqCst));
}

#[tokio::test]
async fn sessions_survive_a_reload() {
    let desk = Gateway::start().await;
    let (signed_in, logged_out) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    logged_out.post("/api/auth/logout").await.expect_code(0);
    append_rules(&desk, NEW_RULE);
    wait_for_status(&desk, "/new/x", 200).await;
    signed_in.get("/api/auth/me").await.expect_code(0);
    logged_out.get("/api/auth/me").await.expect_invalid_token();
}

#[tokio::test]
async fn reload_ends_tokens_of_a_removed_key() {
    let mut desk = Gateway::with("[token]\nalgorithm = \"ES256\"").await;
    let (known, unused) = (desk.sign_in("u1001").await, desk.sign_in("u1001").await);
    let config = std::fs::read_to_string(desk.config_file()).expect("the configuration");
    std::fs::write(desk.config_file(), config.replace("ES256", "EdDSA")).expect("a new configuration");
    desk.restart().await;
    let stays = desk.sign_in("a2001").await;
    for person in [&known, &stays] {
        person.get("/api/auth/me").await.expect_code(0);
        person.get("/api/desk/x").await.expect_status(200);
    }
    let (old, new) = (header_of(known.token()), header_of(stays.token()));
    assert_eq!((&old["alg"], &new["alg"]), (&json!("ES256"), &json!("EdDSA")));
    let file =
        |header: &Value| desk.data_dir().join("keys").join(format!("{}.pem", header["kid"].as_str().expect("a kid")));
    let shown = async || desk.anonymous().get("/.well-known/jwks.json").await.expect_status(200).json();

    std::fs::remove_file(file(&old)).expect("the old key's file");
    desk.signal("HUP");
    eventually("the end of the old key", || async { (known.get("/api/auth/me").await.status == 401).then_some(()) })
        .await;
    for person in [&known, &unused] {
        person.get("/api/auth/me").await.expect_invalid_token();
        person.get("/api/desk/x").await.expect_invalid_token();
    }
    stays.get("/api/auth/me").await.expect_code(0);
    assert_eq!(desk.metric("deskgate_config_reload_success", &[]).await, 1.0);
    let keys = shown().await;
    assert!(!keys.to_string().contains(old["kid"].as_str().expect("a kid")), "{keys}");

    std::fs::remove_file(file(&new)).expect("the new key's file");
    desk.signal("HUP");
    wait_for_metric(&desk, "deskgate_config_reload_success", 0.0).await;
    stays.get("/api/auth/me").await.expect_code(0);
    stays.get("/api/desk/x").await.expect_status(200);
    assert_eq!(header_of(desk.sign_in("u1001").await.token())["kid"], new["kid"]);
    assert_eq!(shown().await, keys);
}

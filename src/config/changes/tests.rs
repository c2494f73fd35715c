use super::super::load_text;
use super::*;

const OLD: &str = r#"
[platform]
corp_id = "ww1"
secret = "one"
[store]
url = "embedded"
[upstreams.desk]
addresses = ["127.0.0.1:1"]
[upstreams.gone]
addresses = ["127.0.0.1:2"]
"#;

fn load(text: &str) -> Config {
    load_text("c.toml", text, &[]).expect("valid")
}

fn changed(from: &str, to: &str) -> ConfigChanges {
    let text = OLD.replace(from, to);
    assert_ne!(text, OLD, "{from}");
    load(OLD).reloaded(load(&text)).1
}

#[test]
fn an_equal_configuration_changes_nothing() {
    assert_eq!(load(OLD).reloaded(load(OLD)).1, ConfigChanges::default());
    let spelled_out = format!("{OLD}\n[token]\nlifetime = \"480m\"\n");
    assert_eq!(load(OLD).reloaded(load(&spelled_out)).1, ConfigChanges::default(), "a default is no change");
}

#[test]
fn changed_keys_are_named_by_what_applies_them() {
    let table: &[(&str, &str, &[&str], &[&str])] = &[
        ("127.0.0.1:1", "127.0.0.1:9", &["upstreams.desk.addresses"], &[]),
        ("[platform]", "[limits]\nstalled = \"1s\"\nidle = \"2s\"\n[platform]", &["limits.stalled"], &["limits.idle"]),
        ("[platform]", "[rules]\ndir = \"/r\"\n[platform]", &["rules.dir"], &[]),
        ("[platform]", "[server]\ndrain = \"1s\"\nthreads = 2\n[platform]", &["server.drain"], &["server.threads"]),
        ("[platform]", "[token]\nlifetime = \"1h\"\n[platform]", &[], &["token.lifetime"]),
        ("\"one\"", "\"two\"", &[], &["platform.secret"]),
    ];
    for (from, to, applied, pending) in table {
        let changes = changed(from, to);
        assert_eq!(
            (changes.applied.as_slice(), changes.pending.as_slice()),
            (&owned(applied)[..], &owned(pending)[..])
        );
    }
}

fn owned(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn new_and_removed_upstreams_are_applied() {
    let changes = changed("upstreams.gone", "upstreams.new");
    assert!(changes.pending.is_empty(), "{changes:?}");
    for key in ["upstreams.gone.addresses", "upstreams.new.addresses"] {
        assert!(changes.applied.iter().any(|changed| changed == key), "{key}: {changes:?}");
    }
}

/// The list of keys and the code that takes them over say the same.
#[test]
fn what_is_named_as_applied_is_taken_over_and_nothing_else() {
    let everything = r#"
[platform]
corp_id = "ww2"
secret = "two"
[server]
listen = ["127.0.0.1:1"]
public_url = "http://127.0.0.1:1"
threads = 3
drain = "1s"
drain_delay = "2s"
upgrade_drain = "3s"
tls = { cert_file = "/c", key_file = "/k" }
[websocket]
query_token = false
handshake = "1s"
close_grace = "2s"
[limits]
head_bytes = 30000
headers = 50
target_bytes = 1000
body_bytes = 1000
head_deadline = "1s"
body_deadline = "1s"
body_rate = 1
body_grace = "1s"
upload_deadline = "1s"
idle = "1s"
stalled = "1s"
connections = 1
connections_per_address = 1
streams_per_connection = 1
invalid_tokens = 1
memory = 1
rate_keys = 1000
[[server.certificates]]
cert_file = "/c"
key_file = "/k"
[rules]
dir = "/r"
watch = true
[token]
lifetime = "1h"
[upstreams.other]
addresses = ["127.0.0.1:3"]
"#;
    let (old, new) = (load(OLD), load(everything));
    let (merged, changes) = old.reloaded(new.clone());
    let left: Vec<String> = merged.differences(&new).into_iter().collect();
    assert_eq!(left, changes.pending, "what was not taken over is pending");
    let taken: Vec<String> = merged.differences(&old).into_iter().collect();
    assert_eq!(taken, changes.applied);
    for key in RELOADED {
        let is_named = changes.applied.iter().any(|changed| changed.starts_with(key));
        assert!(is_named, "{key} is not tried here");
    }
}

#[test]
fn a_changed_password_in_a_url_is_noticed() {
    let with = |password: &str| {
        let url = format!("directory.url=postgres://desk:{password}@127.0.0.1/desk");
        load_text("c.toml", OLD, &[url.parse().expect("an override")]).expect("valid")
    };
    assert_eq!(with("one").reloaded(with("two")).1.pending, ["directory.url"]);
}

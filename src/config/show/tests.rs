use super::*;
use crate::config::load_text;

const TEXT: &str = r#"
[server]
development = true
drain = "7s"
tls = { cert_file = "a.pem", key_file = "b.pem" }

[platform]
kind = "simulated"
secret = "the-platform-secret"

[store]
url = "redis://desk:the-store-password@10.0.0.1:6379"

[upstreams.helpdesk]
addresses = ["127.0.0.1:8000", { address = "127.0.0.1:8001", weight = 3 }]
health = { path = "/health" }

[upstreams."a.b"]
addresses = ["127.0.0.1:9000"]
"#;

fn read(text: &str) -> Config {
    let read = crate::config::load::read_text("test", Path::new(""), text, &[]);
    read.config.expect("a configuration")
}

fn document(config: &Config) -> String {
    let mut text = String::new();
    for section in config.shown(Path::new("")) {
        text += &format!("[{}]\n", section.name);
        for setting in section.settings.iter().filter(|setting| !setting.value.is_null()) {
            text += &format!("{} = {}\n", setting.key, inline_toml(&setting.value));
        }
    }
    text
}

#[test]
fn no_secret_is_shown() {
    let text = document(&read(TEXT));
    assert!(!text.contains("the-platform-secret") && !text.contains("the-store-password"), "{text}");
    assert!(text.contains("secret = \"***\"") && text.contains("redis://***@10.0.0.1:6379"), "{text}");
}

#[test]
fn what_differs_from_the_default_says_so() {
    let config = read(TEXT);
    let sections = config.shown(Path::new(""));
    let changed: Vec<String> = sections
        .iter()
        .flat_map(|section| section.settings.iter().map(move |setting| (section, setting)))
        .filter(|(_, setting)| setting.default.is_some())
        .map(|(section, setting)| format!("{}.{}", section.name, setting.key))
        .collect();
    for key in [
        "server.development",
        "server.drain",
        "server.tls",
        "platform.secret",
        "store.url",
        "upstreams.helpdesk.health",
    ] {
        assert!(changed.iter().any(|changed| changed == key), "{key}: {changed:?}");
    }
    for key in ["server.data_dir", "server.drain_delay", "upstreams.helpdesk.retries"] {
        assert!(!changed.iter().any(|changed| changed == key), "{key}: {changed:?}");
    }
    assert!(sections.iter().any(|section| section.name == "upstreams.\"a.b\""));
}

#[test]
fn relative_paths_start_at_the_same_folder_as_their_defaults() {
    let folder = Path::new("/etc/deskgate");
    let config = crate::config::load::read_text("test", folder, "", &[]).config.expect("a configuration");
    let sections = config.shown(folder);
    let server = sections.iter().find(|section| section.name == "server").expect("a section");
    let data = server.settings.iter().find(|setting| setting.key == "data_dir").expect("a key");
    assert_eq!((data.value.as_str(), &data.default), (Some("/etc/deskgate/data"), &None));
}

#[test]
fn the_shown_configuration_can_be_read_again() {
    let text = r#"
        [server]
        development = true
        [platform]
        kind = "simulated"
        [upstreams.helpdesk]
        addresses = ["127.0.0.1:8000", { address = "127.0.0.1:8001", weight = 3 }]
        health = { path = "/health" }
    "#;
    let config = load_text("test", text, &[]).expect("a valid configuration");
    let again = load_text("shown", &document(&config), &[]).expect("a valid configuration");
    assert_eq!(document(&again), document(&config));
    assert_eq!(again.fleet_digest().as_str(), config.fleet_digest().as_str());
}

#[test]
fn values_are_written_in_toml() {
    let table = [
        (serde_json::json!("a\"b\\c\n"), r#""a\"b\\c\n""#),
        (serde_json::json!("\u{7f}"), r#""\u007f""#),
        (serde_json::json!([1, true]), "[1, true]"),
        (serde_json::json!({ "a b": null, "c": { "d": "e" } }), r#"{ c = { d = "e" } }"#),
        (serde_json::json!({}), "{}"),
    ];
    for (value, expected) in table {
        assert_eq!(inline_toml(&value), expected);
    }
}

/// What no output may have.
const BAIT: &str = "s3cr3t-b4it";

/// A number that no output may have.
const NUMERIC_BAIT: &str = "7312345";

/// A key of the configuration, as TOML around its value.
struct KnownKey {
    name: String,
    before: String,
    after: String,
}

/// The keys that are expected in the place of one that no section has, as the reader says.
fn expected_keys(text: &str) -> Vec<String> {
    let read = crate::config::load::read_text("test", Path::new(""), text, &[]);
    let mut faults = read.faults.iter().map(|fault| fault.why.as_str());
    let message = faults.find_map(|why| why.split_once("unknown field `zzz`, expected"));
    let names = message.map_or("", |(_, names)| names).split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// Adds every key that can stand between two pieces of TOML, and those of the tables and lists of tables in it.
fn collect_keys(before: &str, after: &str, keys: &mut Vec<KnownKey>) {
    for name in expected_keys(&format!("{before}zzz = 1{after}")) {
        for (open, close) in [("{ ", " }"), ("[{ ", " }]")] {
            collect_keys(&format!("{before}{name} = {open}"), &format!("{close}{after}"), keys);
        }
        keys.push(KnownKey { before: format!("{before}{name} = "), after: after.to_owned(), name });
    }
}

/// Every key of every section, also those that are not shown by default.
fn all_keys() -> Vec<KnownKey> {
    let mut keys = Vec::new();
    for section in object(&Config::default()).keys().filter(|section| *section != "upstreams") {
        collect_keys(&format!("[{section}]\n"), "", &mut keys);
    }
    collect_keys("[upstreams.desk]\n", "", &mut keys);
    keys
}

/// Whether a key has a secret as its value, by its name. The name of a file is none.
fn is_secret(name: &str) -> bool {
    const SECRETS: [&str; 10] = [
        "secret",
        "secrets",
        "password",
        "passphrase",
        "token",
        "credential",
        "credentials",
        "headers",
        "cookie",
        "cookies",
    ];
    let is_file = name.ends_with("_file") || name.ends_with("_files");
    !is_file && name.split('_').any(|word| SECRETS.contains(&word))
}

/// Keys about tokens, cookies and headers that have a number or a word as their value.
const NO_SECRETS: [&str; 3] =
    ["[limits]\nheaders = ", "[websocket]\nquery_token = ", "[oauth2]\nrequire_flow_cookie = "];

/// Everything that is printed of a configuration, valid or not: `config show` in both formats, and its faults.
fn printed(text: &str) -> String {
    let read = crate::config::load::read_text("test", Path::new(""), text, &[]);
    let mut printed: Vec<String> = read.faults.iter().map(ToString::to_string).collect();
    for section in read.config.iter().flat_map(|config| config.shown(Path::new(""))) {
        let values = section.settings.iter().flat_map(|setting| [Some(&setting.value), setting.default.as_ref()]);
        printed.extend(values.flatten().flat_map(|value| [inline_toml(value), value.to_string()]));
    }
    printed.join("\n")
}

#[test]
fn no_key_prints_a_secret_whatever_its_value() {
    let keys = all_keys();
    for (before, name) in [
        ("[platform]\n", "secret"),
        ("[store]\n", "url"),
        ("[upstreams.desk]\nhealth = { ", "path"),
        ("[server]\nlisteners = [{ ", "address"),
    ] {
        let is_known = |key: &KnownKey| key.before == format!("{before}{name} = ");
        assert!(keys.iter().any(is_known), "{before}{name} is not among the {} keys that were found", keys.len());
    }
    let urls = [
        format!("\"https://user:{BAIT}@host.example/?k={BAIT}\""),
        format!("\"https://:{BAIT}@host.example/\""),
        format!("\"redis://user:{BAIT}@host.example:1/0?k={BAIT}\""),
        format!("\"postgres://user:{BAIT}@host.example/db\""),
        format!("\"postgres:/user:{BAIT}@host.example/db\""),
        format!("\"user:{BAIT}@host.example\""),
        format!("\"/path?k={BAIT}\""),
        format!("\"user=desk password={BAIT}\""),
    ];
    let lists = urls.iter().map(|url| format!("[{url}]"));
    let values: Vec<String> = urls.iter().cloned().chain(lists).collect();
    let plain = [format!("\"{BAIT}\""), format!("[\"{BAIT}\"]"), NUMERIC_BAIT.to_owned(), format!("{NUMERIC_BAIT}.5")];
    let mut count = 0;
    for KnownKey { name, before, after } in &keys {
        let of_secrets = plain.iter().filter(|_| is_secret(name) && !NO_SECRETS.contains(&before.as_str()));
        for value in values.iter().chain(of_secrets) {
            let text = format!("{before}{value}{after}\n");
            let printed = printed(&text);
            assert!(!printed.contains(BAIT) && !printed.contains(NUMERIC_BAIT), "{text}\n{printed}");
            count += 1;
        }
    }
    assert!(count > 2000, "only {count} values were tried");
}

#[test]
fn the_test_of_all_keys_knows_a_secret_by_its_name() {
    for name in ["secret", "password", "api_token", "basic_credentials", "otlp_headers", "signing_secret"] {
        assert!(is_secret(name), "{name}");
    }
    for name in ["secret_file", "old_secret_files", "password_file", "url", "key_id", "invalid_tokens"] {
        assert!(!is_secret(name), "{name}");
    }
}

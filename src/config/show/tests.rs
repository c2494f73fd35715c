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

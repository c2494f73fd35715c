use super::*;

fn faults(text: &str, overrides: &[&str]) -> Vec<String> {
    let overrides: Vec<Override> = overrides.iter().map(|text| text.parse().expect("override")).collect();
    let found = load_text("c.toml", text, &overrides).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

/// What `wecom` needs, so that the tests below see only their own faults.
const SOUND: &str = "[platform]\ncorp_id = \"ww1\"\nsecret = \"s\"\n";

#[test]
fn all_faults_are_reported_at_once_with_their_lines() {
    let text = "[server]\nlisten = [\"nowhere\"]\nlistenn = 1\n\n[token]\nlifetime = \"8 hours\"\n\n[nonsense]\n";
    let found = faults(text, &["ticket.lifetime=soon"]);
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found[0].starts_with("c.toml:2: server.listen: "), "{}", found[0]);
    assert!(found[1].starts_with("c.toml:3: server.listenn: unknown field"), "{}", found[1]);
    assert!(found[2].starts_with("c.toml:6: token.lifetime: `8 hours` is not a length of time"), "{}", found[2]);
    assert!(found[3].starts_with("c.toml:8: nonsense: there is no such section"), "{}", found[3]);
    assert!(found[4].starts_with("--set: ticket.lifetime: "), "{}", found[4]);
}

#[test]
fn syntax_errors_name_their_line() {
    let found = faults("[server]\nlisten = [\n[token]\nlifetime = \n", &[]);
    assert!(!found.is_empty() && found.iter().all(|fault| fault.starts_with("c.toml:")), "{found:#?}");
}

#[test]
fn contradictions_are_faults() {
    let table: &[(&str, &str, &str)] = &[
        (
            "development beyond loopback",
            "[server]\ndevelopment = true\nlisten = [\"0.0.0.0:80\"]\n",
            "server.development: ",
        ),
        ("simulator without development", "[platform]\nkind = \"simulated\"\n", "platform.kind: "),
        ("a client without its slash", "[clients]\nh5 = \"http://h/h5\"\n", "clients.h5: "),
        ("an upstream without address", "[upstreams.desk]\nretries = 1\n", "upstreams.desk.addresses: "),
        ("no secret", "[platform]\ncorp_id = \"ww1\"\n", "platform.secret_file: "),
        ("a foreign store", "[store]\nurl = \"etcd://x\"\n", "store.url: "),
    ];
    for (case, text, expected) in table {
        let found = faults(text, &[]);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{case}: {found:#?}");
    }
}

#[test]
fn every_kind_of_value_can_be_set_on_the_command_line() {
    let overrides: Vec<Override> = [
        "server.listen=[\"127.0.0.1:0\", \"[::1]:0\"]",
        "server.admin_listen=127.0.0.1:0",
        "server.threads=3",
        "websocket.query_token=false",
        "token.lifetime=2s",
        "upstreams.desk.addresses=[\"127.0.0.1:1\"]",
    ]
    .iter()
    .map(|text| text.parse().expect("override"))
    .collect();
    let config = load_text("c.toml", SOUND, &overrides).expect("sound");
    assert_eq!(config.server.listen.len(), 2);
    assert_eq!(config.server.admin_listen.port(), 0);
    assert_eq!(config.server.threads, 3);
    assert_eq!(config.websocket.query_token, QueryToken::Refused);
    assert_eq!(config.token.lifetime, HumanDuration::seconds(2));
    assert_eq!(config.upstreams["desk"].addresses.len(), 1);
}

#[test]
fn a_secret_never_shows_in_debug_output_or_serialised_form() {
    let config = load_text("c.toml", SOUND.replace("\"s\"", "\"hunter2\"").as_str(), &[]).expect("sound");
    assert!(!format!("{config:?}").contains("hunter2"));
    assert!(!toml::to_string(&config).expect("toml").contains("hunter2"));
}

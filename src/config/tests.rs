use super::*;

fn parse(overrides: &[&str]) -> Vec<Override> {
    overrides.iter().map(|text| text.parse().expect("override")).collect()
}

fn faults(text: &str, overrides: &[&str]) -> Vec<String> {
    let found = load_text("c.toml", text, &parse(overrides)).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

/// The settings that `wecom` requires, so that tests see only their own faults.
const VALID: &str = "[platform]\ncorp_id = \"ww1\"\nsecret = \"s\"\n";

#[test]
fn all_faults_are_reported_at_once_with_their_lines() {
    let text = "[server]\nlisten = [\"nowhere\"]\nlistenn = 1\n\n[token]\nlifetime = \"8 hours\"\n\n[nonsense]\n\n";
    let found = faults(&format!("{text}{VALID}"), &["ticket.lifetime=soon"]);
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found[0].starts_with("c.toml:2: server.listen: \"nowhere\" is not an IP address"), "{}", found[0]);
    assert!(found[1].starts_with("c.toml:3: server.listenn: unknown field"), "{}", found[1]);
    assert!(found[2].starts_with("c.toml:6: token.lifetime: \"8 hours\" is not a duration"), "{}", found[2]);
    assert!(found[3].starts_with("c.toml:8: nonsense: unknown section"), "{}", found[3]);
    assert!(found[4].starts_with("--set: ticket.lifetime: \"soon\" is not a duration"), "{}", found[4]);
}

#[test]
fn a_bad_value_does_not_hide_a_contradiction_in_another_section() {
    let text = "[server]\nlisten = [\"nowhere\"]\n\n[token]\ncache = 0\n\n[platform]\nkind = \"simulated\"\n";
    let found = faults(text, &[]);
    let keys = ["server.listen", "token.cache", "platform.kind"];
    assert_eq!(found.len(), keys.len(), "{found:#?}");
    for key in keys {
        assert!(found.iter().any(|fault| fault.contains(key)), "{key}: {found:#?}");
    }
}

#[test]
fn a_section_with_a_bad_key_is_not_checked_with_the_default_in_its_place() {
    for text in ["[platform]\nkind = \"wecomm\"\n", "[platform]\ncorp_idd = \"ww1\"\nsecret = \"s\"\n"] {
        let found = faults(text, &[]);
        assert_eq!(found.len(), 1, "{found:#?}");
    }
}

#[test]
fn zero_needs_no_unit() {
    let loaded = |text: &str| faults(&format!("{text}\n{VALID}"), &[]);
    assert_eq!(loaded("[server]\ndrain = 0\n"), Vec::<String>::new());
}

#[test]
fn faults_do_not_quote_a_secret() {
    for secret in ["8412345", "8412345.5", "[\"8412345\"]", "{ a = \"8412345\" }"] {
        let found = faults(&format!("[platform]\ncorp_id = \"ww1\"\nsecret = {secret}\n"), &[]);
        assert_eq!(found, ["c.toml:3: platform.secret: is not a string; put it in quotes"]);
    }
    assert_eq!(faults("[platform]\ncorp_id = \"ww1\"\n", &["platform.secret=8412345"]), Vec::<String>::new());
    let authorize_url = "authorize_url = \"https://u:p@open.example.com/\"\n";
    let found = faults(&format!("{VALID}{authorize_url}"), &[]);
    let why = "must not have a user name or a password: browsers get it";
    assert_eq!(found, [format!("c.toml:4: platform.authorize_url: {why}")]);
}

#[test]
fn faults_quote_the_value() {
    let table: &[(&str, &str)] = &[
        ("[server]\nlisten = [\"foo\"]\n", "server.listen: \"foo\" is not an IP address"),
        ("[server]\nlisten = [8080]\n", "server.listen: invalid type: 8080, expected an IP address"),
        ("[server]\nadmin_listen = \"foo\"\n", "server.admin_listen: \"foo\" is not an IP address"),
        ("[server]\npublic_url = \"desk\"\n", "server.public_url: \"desk\" is not a URL"),
        ("[server]\npublic_url = \"ftp://desk\"\n", "server.public_url: \"ftp://desk/\" is not an http or https URL"),
        ("[server]\ntrusted_proxies = [\"lan\"]\n", "server.trusted_proxies: \"lan\" is not a network"),
        ("[server]\npublic_url = \"https://u:p@desk\"\n", "server.public_url: must not have a user name"),
        ("[server]\npublic_url = \"https://:p@desk\"\n", "server.public_url: must not have a user name"),
        (
            "[server]\npublic_url = \"https://u:p@desk/x\"\n",
            "server.public_url: \"https://***@desk/x\" must not have a path",
        ),
        ("[clients]\nh5 = \"https://:p@desk/\"\n", "clients.h5: \"https://***@desk/\" must not have a query"),
        ("[store]\nurl = \"redis:/u:p@h\"\n", "store.url: \"***@h\" is not supported"),
        ("[directory]\nurl = \"user=u password=p\"\n", "directory.url: \"user=u password=***\" is not supported"),
        ("[server]\nthreads = \"many\"\n", "server.threads: invalid type: string \"many\""),
        ("[server]\ndrain = 30\n", "server.drain: 30 has no unit; write \"30s\""),
        ("[server]\ndrain = \"0\"\n", "server.drain: \"0\" is not a duration"),
        ("[limits]\nheaders = 5\n", "limits.headers: 5 is not between 10 and 256"),
        ("[limits]\nstreams_per_connection = 0\n", "limits.streams_per_connection: 0 is not between 1 and 500"),
        ("[limits]\nidle = \"10ms\"\n", "limits.idle: \"10ms\" is too short"),
        ("[token]\nleeway = \"1h\"\n", "token.leeway: \"1h\" is too long"),
        ("[cors]\norigins = [\"*\"]\n", "cors.origins: \"*\" is not a URL"),
        ("[cors]\norigins = [\"null\"]\n", "cors.origins: \"null\" is not a URL"),
        ("[cors]\norigins = [\"https://a/b\"]\n", "cors.origins: \"https://a/b\" is not an origin"),
        ("[cors]\norigins = [\"https://a?b\"]\n", "cors.origins: \"https://a/?***\" is not an origin"),
        ("[cors]\norigins = [\"https://u:p@a\"]\n", "cors.origins: \"https://***@a/\" is not an origin"),
        ("[cors]\norigins = [\"ftp://a\"]\n", "cors.origins: \"ftp://a/\" is not an origin"),
        ("[cors]\nexpose = [\"*\"]\n", "cors.expose: \"*\" is not a header name"),
        ("[bind]\nproof = \"perhaps\"\n", "bind.proof: unknown variant `perhaps`"),
        ("[store]\nurl = \"etcd://x\"\n", "store.url: \"etcd://x\" is not supported"),
        ("[store]\nurl = \"redis+cluster://a,\"\n", "store.url: \"redis+cluster://a,\" is malformed"),
        ("[store]\nprefix = \"a{b}\"\n", "store.prefix: \"a{b}\" is not 1 to 32 letters"),
        ("[store]\ntimeout = \"1ms\"\n", "store.timeout: \"1ms\" is not between"),
        ("[store]\nfeed_stale = \"2m\"\n", "store.feed_stale: \"2m\" is not between"),
        ("[store]\noutage_grace = \"2h\"\n", "store.outage_grace: \"2h\" is too long"),
        ("[store]\nconfirm = \"perhaps\"\n", "store.confirm: unknown variant `perhaps`"),
        ("[store]\nurl = \"redis://a\"\nca_file = \"/dev/null\"\n", "store.ca_file: the URL does not use TLS"),
        (
            "[store]\nurl = \"redis://:p@a\"\npassword_file = \"/dev/null\"\n",
            "store.password_file: the URL has a password too",
        ),
        ("[store]\nurl = \"redis://a\"\npassword_file = \"/none\"\n", "store.password_file: \"/none\" cannot be read"),
        (
            "[store]\nurl = \"redis://a\"\n[directory]\nurl = \"postgres://a@127.0.0.1/b\"\n",
            "server.secret_file: gateways that share a store share their keys",
        ),
        ("[log]\nlevel = \"a=b=c\"\n", "log.level: \"a=b=c\" is not a log level"),
        ("[log]\nlevel = \"warning\"\n", "log.level: \"warning\" is not a log level; write \"error\", \"warn\""),
        ("[log]\nlevel = \"verbose\"\n", "log.level: \"verbose\" is not a log level"),
        ("[log]\nlevel = \"info,verbose\"\n", "log.level: \"verbose\" is not a log level"),
        ("[log]\nlevel = \"\"\n", "log.level: \"\" is not a log level"),
        ("[upstreams.desk]\naddresses = [\"desk\"]\n", "upstreams.desk.addresses: \"desk\" is not an address such as"),
        ("[upstreams.desk]\naddresses = [\"desk:0\"]\n", "\"desk:0\" is not an address such as"),
        ("[upstreams.desk]\naddresses = [\"10.0.0.300:80\"]\n", "\"10.0.0.300:80\" is not an address such as"),
        ("[upstreams.desk]\naddresses = [\"de sk:80\"]\n", "\"de sk:80\" is not an address such as"),
        ("[upstreams.desk]\naddresses = [\"unix:desk.sock\"]\n", "\"unix:desk.sock\" is not an address such as"),
        ("[upstreams.desk]\naddresses = [\"http://u:p@desk:80\"]\n", "\"http://***@desk:80\" is not an address"),
        ("[upstreams.desk]\naddresses = [{ address = \"a:1\", weight = 0 }]\n", "weight 0 is not between 1 and 100"),
        ("[upstreams.desk]\naddresses = [{ address = \"a:1\", wait = 2 }]\n", "unknown field `wait`"),
        ("[upstreams.desk]\naddresses = [\"a:1\"]\nbalance = \"random\"\n", "balance: unknown variant `random`"),
        ("[upstreams.desk]\naddresses = [\"a:1\"]\nresolve = \"1ms\"\n", "resolve: \"1ms\" is too short"),
        ("[upstreams.desk]\naddresses = [\"a:1\"]\nretries = 4\n", "retries: 4 is too many; use at most 3"),
        ("[upstreams.desk]\naddresses = [\"a:1\"]\nretry_budget = 101\n", "retry_budget: 101 is more than 100"),
        ("[upstreams.desk]\naddresses = [\"a:1\"]\nhealth = { path = \"x\" }\n", "health.path: \"x\" is not a path"),
        (
            "[upstreams.desk]\naddresses = [\"a:1\"]\nhealth = { every = \"1ms\" }\n",
            "health.every: \"1ms\" is too short",
        ),
        ("[upstreams.desk]\naddresses = [\"a:1\"]\nhealth = { expect = [] }\n", "health.expect: [] is not a list"),
        ("[upstreams.desk]\naddresses = [\"a:1\"]\nejection = { most = 101 }\n", "ejection.most: 101 is more than 100"),
        (
            "[upstreams.desk]\naddresses = [\"a:1\"]\nejection = { longest = \"1s\" }\n",
            "ejection.longest: \"1s\" is shorter than `for`",
        ),
        ("[upstreams.\"a b\"]\naddresses = [\"127.0.0.1:1\"]\n", "upstreams.a b: \"a b\" is not a valid name"),
    ];
    for (text, expected) in table {
        let found = faults(&format!("{text}\n{VALID}"), &[]);
        assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:#?}");
    }
}

#[test]
fn log_levels_and_filters_are_valid() {
    for level in ["error", "WARN", "info", "debug", "trace", "off", "3", "info,deskgate=debug", "deskgate=info"] {
        let found = faults(&format!("[log]\nlevel = \"{level}\"\n{VALID}"), &[]);
        assert!(found.is_empty(), "{level}: {found:#?}");
    }
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
        ("no address", "[server]\nlisten = []\n", "server.listen: [] has no address"),
        (
            "TLS without a certificate",
            "[[server.listeners]]\naddress = \"127.0.0.1:1\"\ntls = true\n",
            "server.listeners: \"127.0.0.1:1\": tls = true requires a certificate",
        ),
        (
            "client certificates without TLS",
            "[[server.listeners]]\naddress = \"127.0.0.1:1\"\nclient_ca_file = \"a\"\n",
            "server.listeners: \"127.0.0.1:1\": client_ca_file requires tls",
        ),
        (
            "h2c with TLS",
            "[server]\ntls = { cert_file = \"a\", key_file = \"b\" }\n[[server.listeners]]\n\
             address = \"127.0.0.1:1\"\ntls = true\nh2c = true\n",
            "server.listeners: \"127.0.0.1:1\": h2c",
        ),
        (
            "an address twice",
            "[server]\nlisten = [\"127.0.0.1:1\"]\n[[server.listeners]]\naddress = \"127.0.0.1:1\"\n",
            "server.listeners: \"127.0.0.1:1\" is listed twice",
        ),
        (
            "certificates that no listener uses",
            "[[server.certificates]]\ncert_file = \"a\"\nkey_file = \"b\"\n",
            "server.certificates: no listener",
        ),
        ("a certificate without a key", "[[server.certificates]]\ncert_file = \"a\"\n", "server.certificates: missing"),
        (
            "development beyond loopback on one of several listeners",
            "[server]\ndevelopment = true\n[[server.listeners]]\naddress = \"0.0.0.0:80\"\n",
            "server.development: ",
        ),
        ("no secret", "[platform]\ncorp_id = \"ww1\"\n", "platform.secret_file: "),
        ("an unknown store", "[store]\nurl = \"etcd://x\"\n", "store.url: "),
    ];
    for (case, text, expected) in table {
        let found = faults(text, &[]);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{case}: {found:#?}");
    }
}

#[test]
fn the_default_address_is_for_a_gateway_without_listeners() {
    let addresses = |text: &str| -> Vec<String> {
        let config = load_text("c.toml", &format!("{text}\n{VALID}"), &[]).expect("valid");
        config.server.client_listeners().iter().map(|listener| listener.address.to_string()).collect()
    };
    let listener = "[[server.listeners]]\naddress = \"127.0.0.1:1\"\n";
    assert_eq!(addresses(""), ["127.0.0.1:8080"]);
    assert_eq!(addresses(listener), ["127.0.0.1:1"]);
    let listen = "[server]\nlisten = [\"127.0.0.1:8080\"]\n";
    assert_eq!(addresses(&format!("{listen}{listener}")), ["127.0.0.1:8080", "127.0.0.1:1"]);
}

#[test]
fn every_kind_of_value_can_be_set_on_the_command_line() {
    let overrides = parse(&[
        "server.listen=[\"127.0.0.1:0\", \"[::1]:0\"]",
        "server.admin_listen=127.0.0.1:0",
        "server.threads=3",
        "websocket.query_token=false",
        "token.lifetime=2s",
        "upstreams.desk.addresses=[\"127.0.0.1:1\"]",
    ]);
    let config = load_text("c.toml", VALID, &overrides).expect("valid");
    assert_eq!(config.server.listen.expect("addresses").len(), 2);
    assert_eq!(config.server.admin_listen.port(), 0);
    assert_eq!(config.server.threads, 3);
    assert_eq!(config.websocket.query_token, QueryToken::Refused);
    assert_eq!(config.token.lifetime, HumanDuration::seconds(2));
    assert_eq!(config.upstreams["desk"].addresses.len(), 1);
}

#[test]
fn a_bare_word_or_number_on_the_command_line_sets_a_list_of_one_entry_or_a_string() {
    let overrides = parse(&[
        "server.listen=127.0.0.1:8081",
        "server.trusted_proxies=\"10.0.0.0/8\"",
        "otp.old_key_files=7",
        "platform.agent_id=1000002",
        "upstreams.desk.addresses=127.0.0.1:1",
    ]);
    let config = load_text("c.toml", VALID, &overrides).expect("valid");
    assert_eq!(config.server.listen, Some(vec!["127.0.0.1:8081".parse().expect("an address")]));
    assert_eq!(config.server.trusted_proxies, ["10.0.0.0/8".parse().expect("a network")]);
    assert_eq!(config.otp.old_key_files, [std::path::PathBuf::from("7")]);
    assert_eq!(config.platform.agent_id, "1000002");
    assert_eq!(config.upstreams["desk"].addresses.len(), 1);
}

#[test]
fn addresses_of_upstreams_are_ip_addresses_names_or_unix_sockets_with_weights() {
    let text = "[upstreams.desk]\naddresses = [\"127.0.0.1:1\", \"[::1]:2\", \"desk.internal:80\", \"unix:/run/a.sock\",\n\
                { address = \"10.0.0.2:8000\", weight = 2 }]\nhealth = {}\n";
    let config = load_text("c.toml", &format!("{text}{VALID}"), &[]).expect("valid");
    let desk = &config.upstreams["desk"];
    let addresses: Vec<(String, u32)> =
        desk.addresses.iter().map(|entry| (entry.address.to_string(), entry.weight)).collect();
    let expected = [("127.0.0.1:1", 1), ("[::1]:2", 1), ("desk.internal:80", 1), ("unix:/run/a.sock", 1)];
    let expected = expected.into_iter().chain([("10.0.0.2:8000", 2)]);
    assert_eq!(addresses, expected.map(|(address, weight)| (address.to_owned(), weight)).collect::<Vec<_>>());
    assert!(desk.health.as_ref().is_some_and(|health| health.path.is_empty()), "an empty table checks connections");
    let written = toml::to_string(&config).expect("TOML");
    assert!(written.contains("weight = 2"), "{written}");
}

#[test]
fn a_bad_value_on_the_command_line_is_quoted() {
    let table: &[(&str, &str)] = &[
        ("server.listen=foo", "--set: server.listen: \"foo\" is not an IP address"),
        ("server.listen=8080", "--set: server.listen: \"8080\" is not an IP address"),
        ("server.listen=[\"foo\"]", "--set: server.listen: \"foo\" is not an IP address"),
        ("server.drain=30", "--set: server.drain: 30 has no unit"),
        ("server.threads=many", "--set: server.threads: invalid type: string \"many\""),
        ("server.lisen=foo", "--set: server.lisen: unknown field"),
    ];
    for (change, expected) in table {
        let found = faults(VALID, &[change]);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{change}: {found:#?}");
    }
    let error = "server=1".parse::<Override>().expect_err("no key");
    assert_eq!(error, "\"server=…\" is not of the form section.key=value");
    let error = |text: &str| text.parse::<Override>().expect_err("no override");
    assert_eq!(error("platform.secret:hunter2"), "\"platform.secret:…\" is not of the form section.key=value");
    assert_eq!(error("hunter2"), "the argument is not of the form section.key=value");
}

#[test]
fn a_list_in_a_file_is_written_as_a_list() {
    let found = faults(&format!("[server]\nlisten = \"127.0.0.1:8080\"\n{VALID}"), &[]);
    assert!(found.len() == 1 && found[0].contains("server.listen: "), "{found:#?}");
}

#[test]
fn a_secret_never_shows_in_debug_output_or_serialised_form() {
    let config = load_text("c.toml", VALID.replace("\"s\"", "\"hunter2\"").as_str(), &[]).expect("valid");
    assert!(!format!("{config:?}").contains("hunter2"));
    assert!(!toml::to_string(&config).expect("toml").contains("hunter2"));
}

#[test]
fn a_shared_store_needs_a_shared_directory_outside_development_mode() {
    let development = "[server]\ndevelopment = true\n[platform]\nkind = \"simulated\"\n";
    let shared = ["store.url=redis://127.0.0.1", "directory.url=postgres://desk@127.0.0.1/desk"];
    for (case, text, sets, refused) in [
        ("both private", VALID, &[][..], false),
        ("both shared", VALID, &shared[..], false),
        ("shared directory", VALID, &shared[1..], false),
        ("shared store", VALID, &shared[..1], true),
        ("shared store in development mode", development, &shared[..1], false),
    ] {
        // A shared store also needs a secret, which another test is about.
        let found: Vec<String> =
            faults(text, sets).into_iter().filter(|fault| !fault.contains("server.secret_file")).collect();
        let is_refused = found.iter().any(|fault| fault.contains("directory.url: store.url is shared"));
        assert!(is_refused == refused && found.len() == usize::from(refused), "{case}: {found:#?}");
    }
}

#[test]
fn a_fault_shows_no_password_of_a_url() {
    for change in [
        "directory.url=mysql://desk:hunter2@db/desk",
        "store.url=redis+unix://:hunter2@cache",
        "platform.api_url=http://u:hunter2@ho st/",
    ] {
        let found = faults(VALID, &[change]);
        assert!(found.len() == 1 && found[0].contains("://***@") && !found[0].contains("hunter2"), "{found:#?}");
    }
}

#[test]
fn a_message_about_a_key_gets_the_place_of_the_key() {
    let text = "[server]\nlisten = []\n[[server.certificates]]\ncert_file = \"a\"\nkey_file = \"a\"\n\
                [[server.certificates]]\ncert_file = \"b\"\nkey_file = \"b\"\n";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("deskgate.toml");
    std::fs::write(&file, text).expect("the file");
    let overrides = ["otp.key_file=/key".parse().expect("an override")];
    let places = super::read(Some(&file), &overrides).places;
    let file = file.display();
    for (message, located) in [
        ("server.listen: why", format!("{file}:2: server.listen: why")),
        ("server.certificates[1]: why", format!("{file}:6: server.certificates[1]: why")),
        ("server.certificates[1].key_file: why", format!("{file}:8: server.certificates[1].key_file: why")),
        ("server.data_dir: why", format!("{file}:1: server.data_dir: why")),
        ("otp.key_file: why", "--set: otp.key_file: why".to_owned()),
        ("/some/file: why: more", "/some/file: why: more".to_owned()),
    ] {
        assert_eq!(places.locate(message), located);
    }
}

use super::*;

#[test]
fn a_host_is_a_name_or_an_address_with_an_optional_port() {
    for host in ["desk", "desk.example:443", "127.0.0.1:80", "[::1]", "[::1]:8080", "Desk.Example.", "a_b"] {
        assert!(RequestHost::parse(host.as_bytes()).is_some(), "{host}");
    }
    for host in [
        "",
        ".",
        ":80",
        "a:",
        "a:http",
        "a:-1",
        "a:+1",
        "a:0",
        "a:99999",
        "[::1",
        "::1",
        "a:80:90",
        "u@h",
        "a b",
        "[]",
        "[::1]x",
        "[a:b]",
        "[::1%25eth0]",
        "a,b",
        "a/b",
        "büro",
    ] {
        assert!(RequestHost::parse(host.as_bytes()).is_none(), "{host}");
    }
}

#[test]
fn an_entry_allows_its_host_in_every_spelling_and_on_every_port_unless_it_names_one() {
    let table: &[(&str, &[&str], &[&str])] = &[
        (
            "desk.example.com",
            &["desk.example.com", "DESK.Example.com", "desk.example.com.", "desk.example.com:8443"],
            &["example.com", "a.desk.example.com", "desk.example.com.evil.example", "desk-example.com", "127.0.0.1"],
        ),
        ("desk.example.com:8443", &["Desk.example.com:8443"], &["desk.example.com", "desk.example.com:443"]),
        ("127.0.0.1", &["127.0.0.1:8080", "[::ffff:127.0.0.1]"], &["127.0.0.2", "localhost", "127.1", "0x7f.0.0.1"]),
        ("[2001:db8::1]", &["[2001:DB8:0::1]:443"], &["[2001:db8::2]"]),
    ];
    for (entry, allowed, refused) in table {
        let hosts = AllowedHosts { entries: vec![entry.parse().expect("a host")], loopback: LoopbackHosts::NotAllowed };
        let allows = |host: &str| hosts.allows(RequestHost::parse(host.as_bytes()).as_ref());
        for host in *allowed {
            assert!(allows(host), "{entry}: {host}");
        }
        for host in *refused {
            assert!(!allows(host), "{entry}: {host}");
        }
        assert!(!hosts.allows(None), "{entry}: no host");
    }
}

#[test]
fn loopback_hosts_are_names_and_addresses_of_this_machine() {
    for host in ["localhost", "LOCALHOST:8080", "desk.localhost", "localhost.", "127.0.0.1", "127.8.9.1:80", "[::1]:80"]
    {
        assert!(AllowedHosts::LOOPBACK.allows(RequestHost::parse(host.as_bytes()).as_ref()), "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "evillocalhost", "0.0.0.0", "[::]", "10.0.0.1", "128.0.0.1"]
    {
        assert!(!AllowedHosts::LOOPBACK.allows(RequestHost::parse(host.as_bytes()).as_ref()), "{host}");
    }
}

#[test]
fn hosts_are_parsed_the_same_with_and_without_entries() {
    let names = [
        "desk.example.com",
        "desk.example.com.",
        "127.0.0.1",
        "[2001:db8::1]",
        "[::ffff:127.0.0.1]",
        "a_b",
        "büro",
        "[::1",
        "",
    ];
    let ports =
        ["", ":", ":80", ":8443", ":0", ":80a", ":8443.", ":+1", ":65536", ".", ".:80", "x", ".evil.example", "\u{e9}"];
    let entry_of = |name: &str, port: &str| format!("{name}{port}").parse::<HostEntry>().ok();
    let entries: Vec<HostEntry> =
        names.iter().flat_map(|name| ["", ":8443"].iter().filter_map(|port| entry_of(name, port))).collect();
    assert_eq!(entries.len(), 12);
    for entry in entries {
        let hosts = AllowedHosts { entries: vec![entry], loopback: LoopbackHosts::NotAllowed };
        for host in names.iter().flat_map(|name| ports.iter().map(move |port| format!("{name}{port}"))) {
            assert_eq!(
                hosts.parse(host.as_bytes()),
                RequestHost::parse(host.as_bytes()),
                "{}: {host}",
                hosts.entries[0]
            );
        }
        assert_eq!(hosts.parse(b"desk.example.com:\xff"), None);
    }
}

use super::*;
use crate::pipeline::head::{Fields, HeaderLines};

/// Header lines, as a proxy sends them.
struct Lines<'a>(&'a [&'a str]);

impl HeaderLines for Lines<'_> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a [u8], &'a [u8])) {
        for value in self.0 {
            visit(b"x-forwarded-for", value.as_bytes());
        }
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn decide(setting: ClientAddress, peer: &str, lines: &[&str]) -> Result<IpAddr, Error> {
    let networks = ["127.0.0.0/8", "10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
    let forwarded = ForwardedHeaders::XForwarded;
    let proxies = TrustedProxies { networks: networks.to_vec(), forwarded, client_address: setting };
    let lines = Lines(lines);
    proxies.client_of(address(peer), &Fields::of(&lines))
}

/// The client's address, or `None` for a 1400.
fn client_of(setting: ClientAddress, peer: &str, lines: &[&str]) -> Option<String> {
    decide(setting, peer, lines).ok().map(|client| client.to_string())
}

#[test]
fn the_refusal_says_whether_an_entry_or_the_length_is_at_fault() {
    let long = vec!["203.0.113.7"; LONGEST / 11].join(",");
    for (line, expected) in [
        ("203.0.113.9, garbage", BadRequest::ForwardedForEntry("X-Forwarded-For")),
        (&long, BadRequest::ForwardedForLength("X-Forwarded-For")),
    ] {
        let refused = decide(ClientAddress::First, "127.0.0.1", &[line]);
        assert!(matches!(&refused, Err(Error::BadRequest(fault)) if *fault == expected), "{expected}: {refused:?}");
    }
}

#[test]
fn the_client_is_the_first_address_or_the_rightmost_one_that_is_no_trusted_proxy() {
    // The lines, and the client by `first` and by `rightmost`.
    let table: &[(&str, &[&str], &str, &str)] = &[
        ("no field", &[], "127.0.0.1", "127.0.0.1"),
        ("one address", &["203.0.113.7"], "203.0.113.7", "203.0.113.7"),
        ("a spoofed one before it", &["10.1.1.1, 203.0.113.7"], "10.1.1.1", "203.0.113.7"),
        ("a proxy behind it", &["198.51.100.1, 203.0.113.7, 10.0.0.2"], "198.51.100.1", "203.0.113.7"),
        ("several lines are one list", &["198.51.100.1", "203.0.113.7", "10.0.0.2"], "198.51.100.1", "203.0.113.7"),
        ("trusted proxies alone", &["10.0.0.3, 10.0.0.2"], "10.0.0.3", "10.0.0.3"),
        ("empty elements", &[", 203.0.113.7,,", "", " ,10.0.0.2"], "203.0.113.7", "203.0.113.7"),
        ("spaces and tabs", &[" \t203.0.113.7\t , 10.0.0.2 "], "203.0.113.7", "203.0.113.7"),
        ("with a port", &["203.0.113.7:4711"], "203.0.113.7", "203.0.113.7"),
        ("IPv6", &["2001:db8::7"], "2001:db8::7", "2001:db8::7"),
        ("IPv6 in brackets", &["[2001:db8::7]"], "2001:db8::7", "2001:db8::7"),
        ("IPv6 with a port", &["[2001:db8::7]:443, [fd00::1]:80"], "2001:db8::7", "2001:db8::7"),
        ("IPv4 as IPv6", &["::ffff:203.0.113.7"], "203.0.113.7", "203.0.113.7"),
        ("a trusted proxy as IPv6", &["203.0.113.7, ::ffff:10.0.0.2"], "203.0.113.7", "203.0.113.7"),
    ];
    for (case, lines, first, rightmost) in table {
        let found = |setting| client_of(setting, "127.0.0.1", lines);
        assert_eq!(found(ClientAddress::First).as_deref(), Some(*first), "{case}, first");
        assert_eq!(found(ClientAddress::Rightmost).as_deref(), Some(*rightmost), "{case}, rightmost");
    }
}

#[test]
fn a_list_of_a_trusted_peer_must_be_readable_as_a_whole() {
    let long = vec!["203.0.113.7"; LONGEST / 11].join(",");
    let table: &[(&str, &[&str])] = &[
        ("nothing", &[""]),
        ("only commas", &[" , ,"]),
        ("a word", &["garbage"]),
        ("a word before an address", &["garbage, 203.0.113.9"]),
        ("a word after an address", &["203.0.113.9, garbage"]),
        ("a word in another line", &["203.0.113.9", "garbage"]),
        ("unknown", &["unknown"]),
        ("an obfuscated identifier", &["_hidden"]),
        ("a name", &["proxy.example"]),
        ("five numbers", &["203.0.113.7.9"]),
        ("a number above 255", &["999.1.1.1"]),
        ("a leading zero", &["010.0.0.1"]),
        ("a port that is no number", &["203.0.113.7:http"]),
        ("a signed port", &["203.0.113.7:+80"]),
        ("a port above 65535", &["203.0.113.7:65536"]),
        ("no port behind the colon", &["203.0.113.7:"]),
        ("half a bracket", &["[2001:db8::7"]),
        ("IPv4 in brackets", &["[203.0.113.7]"]),
        ("text behind the bracket", &["[2001:db8::7]443"]),
        ("a zone", &["fe80::1%eth0"]),
        ("quotes", &["\"203.0.113.7\""]),
        ("RFC 7239", &["for=203.0.113.7"]),
        ("other separators", &["203.0.113.7 10.0.0.2"]),
        ("not UTF-8 as such", &["203.0.113.7\u{a0}"]),
        ("too long", &[&long]),
    ];
    for (case, lines) in table {
        for setting in [ClientAddress::First, ClientAddress::Rightmost] {
            assert_eq!(client_of(setting, "127.0.0.1", lines), None, "{case}, {setting:?}");
        }
    }
}

#[test]
fn the_list_of_an_untrusted_peer_is_ignored() {
    for lines in [&["10.1.1.1"][..], &["garbage"], &[""]] {
        for setting in [ClientAddress::First, ClientAddress::Rightmost] {
            assert_eq!(client_of(setting, "203.0.113.9", lines).as_deref(), Some("203.0.113.9"), "{lines:?}");
        }
    }
}

/// Lines of both headers.
struct BothHeaders<'a>(&'a str, &'a str);

impl HeaderLines for BothHeaders<'_> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a [u8], &'a [u8])) {
        visit(b"x-forwarded-for", self.0.as_bytes());
        visit(b"forwarded", self.1.as_bytes());
    }
}

#[test]
fn one_header_is_read_and_never_the_other() {
    let lines = BothHeaders("203.0.113.1", "for=203.0.113.2");
    let (x_forwarded, forwarded) = (ForwardedHeaders::XForwarded, ForwardedHeaders::Rfc7239);
    for (setting, expected) in
        [(x_forwarded, "203.0.113.1"), (forwarded, "203.0.113.2"), (ForwardedHeaders::Both, "203.0.113.1")]
    {
        let networks = vec!["127.0.0.0/8".parse().expect("a network")];
        let proxies = TrustedProxies { networks, forwarded: setting, client_address: ClientAddress::First };
        let fields = Fields::of(&lines);
        assert_eq!(proxies.client_of(address("127.0.0.1"), &fields).ok(), Some(address(expected)), "{setting:?}");
        let untrusted = address("198.51.100.1");
        assert_eq!(proxies.client_of(untrusted, &fields).ok(), Some(untrusted), "{setting:?}");
    }
}

#[test]
fn a_hidden_client_is_refused_and_other_hidden_nodes_are_not() {
    // The header, and the client by `first` and by `rightmost`; `None` for a 1400.
    let table: &[(&str, &str, Option<&str>, Option<&str>)] = &[
        ("one address", "for=203.0.113.7", Some("203.0.113.7"), Some("203.0.113.7")),
        ("a hidden client", "for=unknown, for=10.0.0.2", None, None),
        ("a hidden node before it", "for=_a, for=203.0.113.7, for=10.0.0.2", None, Some("203.0.113.7")),
        ("a hidden proxy behind it", "for=203.0.113.7, for=_b, for=10.0.0.2", Some("203.0.113.7"), None),
        ("no node", "proto=https", None, None),
        ("a spoofed one before it", "for=10.1.1.1, for=203.0.113.7", Some("10.1.1.1"), Some("203.0.113.7")),
        ("trusted proxies alone", "for=10.0.0.3, for=10.0.0.2", Some("10.0.0.3"), Some("10.0.0.3")),
        ("malformed", "for=203.0.113.7, garbage", None, None),
    ];
    for (case, line, first, rightmost) in table {
        for (client_address, expected) in [(ClientAddress::First, first), (ClientAddress::Rightmost, rightmost)] {
            let networks = ["127.0.0.0/8", "10.0.0.0/8"].map(|network| network.parse().expect("a network")).to_vec();
            let proxies = TrustedProxies { networks, forwarded: ForwardedHeaders::Rfc7239, client_address };
            let lines = BothHeaders("garbage", line);
            let client = proxies.client_of(address("127.0.0.1"), &Fields::of(&lines)).ok();
            assert_eq!(client, expected.map(address), "{case}, {client_address:?}");
        }
    }
}

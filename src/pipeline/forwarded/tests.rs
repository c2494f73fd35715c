use proptest::prelude::*;

use super::*;
use crate::pipeline::head::{Fields, HeaderLines};

/// Lines of `Forwarded`, as a proxy sends them.
struct ForwardedLines<'a>(&'a [&'a str]);

impl HeaderLines for ForwardedLines<'_> {
    fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a [u8], &'a [u8])) {
        for value in self.0 {
            visit(b"Forwarded", value.as_bytes());
        }
    }
}

/// The nodes as text, or `None` if the header is malformed.
fn read(lines: &[&str]) -> Option<Vec<String>> {
    let lines = ForwardedLines(lines);
    let nodes = nodes(&Fields::of(&lines).forwarded)?;
    let text = |node: &Node| match node {
        Node::Address(address) => address.to_string(),
        Node::Hidden => "hidden".to_owned(),
    };
    Some(nodes.iter().map(text).collect())
}

#[test]
fn nodes_are_read_in_order() {
    let table: &[(&str, &[&str], &[&str])] = &[
        ("an address", &["for=192.0.2.60"], &["192.0.2.60"]),
        ("another case", &["For=192.0.2.60;Proto=http"], &["192.0.2.60"]),
        ("quoted", &[r#"for="192.0.2.60""#], &["192.0.2.60"]),
        ("a port", &[r#"for="192.0.2.43:47011""#], &["192.0.2.43"]),
        ("IPv6", &[r#"for="[2001:db8:cafe::17]""#], &["2001:db8:cafe::17"]),
        ("IPv6 with a port", &[r#"for="[2001:db8:cafe::17]:4711""#], &["2001:db8:cafe::17"]),
        ("IPv4 as IPv6", &[r#"for="[::ffff:192.0.2.60]""#], &["192.0.2.60"]),
        ("an obfuscated port", &[r#"for="192.0.2.43:_abc""#], &["192.0.2.43"]),
        ("unknown", &["for=unknown"], &["hidden"]),
        ("unknown with a port", &[r#"for="Unknown:80""#], &["hidden"]),
        ("an obfuscated node", &["for=_gazonk"], &["hidden"]),
        ("no node", &["proto=https;by=203.0.113.43"], &["hidden"]),
        ("other parameters", &[r#"by=_x;for=192.0.2.60;host="a,b;c\"d";proto=https"#], &["192.0.2.60"]),
        ("a list", &["for=192.0.2.43, for=198.51.100.17"], &["192.0.2.43", "198.51.100.17"]),
        ("lines", &["for=192.0.2.43", "for=198.51.100.17,for=_b"], &["192.0.2.43", "198.51.100.17", "hidden"]),
        ("empty elements", &[", for=192.0.2.43 , ,", ""], &["192.0.2.43"]),
        ("empty parameters", &[";for=192.0.2.43;;proto=http;"], &["192.0.2.43"]),
        ("spaces", &["for=192.0.2.43 ; proto=http"], &["192.0.2.43"]),
        ("an escape", &[r#"for="192\.0.2.43""#], &["192.0.2.43"]),
    ];
    for (case, lines, expected) in table {
        let expected: Vec<String> = expected.iter().map(|node| (*node).to_owned()).collect();
        assert_eq!(read(lines), Some(expected), "{case}");
    }
}

#[test]
fn a_malformed_header_has_no_nodes() {
    let table: &[(&str, &[&str])] = &[
        ("nothing", &[""]),
        ("only commas", &[" , ,"]),
        ("only semicolons", &[";;"]),
        ("a word", &["garbage"]),
        ("no value", &["for="]),
        ("no name", &["=192.0.2.1"]),
        ("a space before the value", &["for= 192.0.2.1"]),
        ("a space before the sign", &["for =192.0.2.1"]),
        ("a name", &["for=proxy.example"]),
        ("a short address", &["for=192.0.2"]),
        ("IPv6 without quotes", &["for=[2001:db8::1]"]),
        ("IPv6 without brackets", &[r#"for="2001:db8::1""#]),
        ("IPv4 in brackets", &[r#"for="[192.0.2.1]""#]),
        ("an open bracket", &[r#"for="[2001:db8::1""#]),
        ("something behind a bracket", &[r#"for="[2001:db8::1]x""#]),
        ("a large port", &[r#"for="192.0.2.1:65536""#]),
        ("an empty port", &[r#"for="192.0.2.1:""#]),
        ("a port that is a word", &[r#"for="192.0.2.1:http""#]),
        ("a port without quotes", &["for=192.0.2.1:80"]),
        ("an open quotation", &[r#"for="192.0.2.1"#]),
        ("an escape at the end", &[r#"for="192.0.2.1\"#]),
        ("something behind a quotation", &[r#"for="192.0.2.1"x"#]),
        ("an empty identifier", &["for=_"]),
        ("an invalid identifier", &[r#"for="_a/b""#]),
        ("a quotation over two lines", &[r#"for="192.0.2.1"#, r#"""#]),
        ("an address twice", &["for=192.0.2.1;for=192.0.2.2"]),
        ("a good element before a bad one", &["for=192.0.2.1, garbage"]),
        ("a bad line after a good one", &["for=192.0.2.1", "for=x"]),
    ];
    for (case, lines) in table {
        assert_eq!(read(lines), None, "{case}");
    }
}

#[test]
fn what_is_written_can_be_read() {
    let table: &[(&str, &str, &str, &str)] = &[
        ("192.0.2.1", "192.0.2.1", "desk.example", r#"for=192.0.2.1;host="desk.example";proto=https"#),
        ("192.0.2.1", "10.0.0.1", "desk:8443", r#"for=192.0.2.1;host="desk:8443";proto=https, for=10.0.0.1"#),
        ("2001:db8::1", "fd00::1", "[::1]:80", r#"for="[2001:db8::1]";host="[::1]:80";proto=https, for="[fd00::1]""#),
        ("192.0.2.1", "192.0.2.1", r#"a"b\c"#, r#"for=192.0.2.1;host="a\"b\\c";proto=https"#),
    ];
    for (client, peer, host, expected) in table {
        let written = value(client.parse().unwrap(), peer.parse().unwrap(), host.as_bytes(), b"https");
        let written = std::str::from_utf8(&written).unwrap();
        assert_eq!(written, *expected);
        let mut nodes = vec![(*client).to_owned()];
        nodes.extend((client != peer).then(|| (*peer).to_owned()));
        assert_eq!(read(&[written]), Some(nodes), "{expected}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[ -~]{0,80}", element in "(for=|by=|;|,|\"|\\\\|\\[|::1|\\]|192.0.2.1|:80|_a| ){0,12}") {
        for line in [text, element] {
            if let Some(nodes) = read(&[&line]) {
                prop_assert!(!nodes.is_empty() && nodes.len() <= line.len());
            }
        }
    }
}

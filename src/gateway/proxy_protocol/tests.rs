use proptest::prelude::*;

use super::*;

/// A header of version 2.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("a short header").to_be_bytes();
    [SIGNATURE, &[command, family][..], &length, rest].concat()
}

fn ipv4() -> Vec<u8> {
    [&[192, 0, 2, 1][..], &[198, 51, 100, 2], &4711_u16.to_be_bytes(), &443_u16.to_be_bytes()].concat()
}

fn ipv6() -> Vec<u8> {
    let (source, destination): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let ports = [4711_u16.to_be_bytes(), 443_u16.to_be_bytes()].concat();
    [&source.octets()[..], &destination.octets(), &ports].concat()
}

fn valid_headers() -> Vec<(&'static str, Vec<u8>, Option<&'static str>)> {
    let extension = [ipv4(), vec![0x04, 0, 3, 1, 2, 3]].concat();
    vec![
        ("v1, IPv4", b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n".to_vec(), Some("192.0.2.1:4711")),
        ("v1, IPv6", b"PROXY TCP6 2001:db8::1 2001:db8::2 4711 443\r\n".to_vec(), Some("[2001:db8::1]:4711")),
        ("v1, port 0", b"PROXY TCP4 192.0.2.1 198.51.100.2 0 443\r\n".to_vec(), Some("192.0.2.1:0")),
        ("v1, unknown", b"PROXY UNKNOWN\r\n".to_vec(), None),
        ("v1, unknown and addresses", b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), None),
        ("v2, IPv4", binary(0x21, 0x11, &ipv4()), Some("192.0.2.1:4711")),
        ("v2, IPv6", binary(0x21, 0x21, &ipv6()), Some("[2001:db8::1]:4711")),
        ("v2, an extension", binary(0x21, 0x11, &extension), Some("192.0.2.1:4711")),
        ("v2, the longest", binary(0x21, 0x11, &[ipv4(), vec![0; LONGEST_REST - 12]].concat()), Some("192.0.2.1:4711")),
        ("v2, local", binary(0x20, 0x00, b""), None),
        ("v2, local with an address", binary(0x20, 0x11, &ipv4()), None),
        ("v2, no family", binary(0x21, 0x00, b""), None),
        ("v2, no family and an extension", binary(0x21, 0x00, b"\x04\0\0"), None),
        ("v2, a Unix socket", binary(0x21, 0x31, &[b'/'; 216]), None),
    ]
}

#[test]
fn the_source_of_a_valid_header_is_the_client() {
    for (case, bytes, expected) in valid_headers() {
        let client = match expected {
            Some(address) => ProxiedClient::Address(address.parse().unwrap()),
            None if case.contains("local") => ProxiedClient::LoadBalancer,
            None => ProxiedClient::Unnamed,
        };
        let header = Header { client, length: bytes.len() };
        assert_eq!(parse(&bytes), Ok(Some(header)), "{case}");
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]), Ok(None), "{case}: the first {length} bytes");
        }
        let with_request = [&bytes[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(parse(&with_request), Ok(Some(header)), "{case}, and a request behind it");
    }
}

#[test]
fn what_is_no_header_is_refused() {
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LONGEST_LINE));
    let mut other_signature = binary(0x21, 0x11, &ipv4());
    other_signature[11] = b'\r';
    let table: &[(&str, &[u8])] = &[
        ("a request", b"GET / HTTP/1.1\r\nHost: desk\r\n\r\n"),
        ("a TLS handshake", &[0x16, 3, 1, 0, 200, 1]),
        ("another case", b"proxy TCP4 192.0.2.1 198.51.100.2 4711 443\r\n"),
        ("no family", b"PROXY \r\n"),
        ("another family", b"PROXY UDP4 192.0.2.1 198.51.100.2 4711 443\r\n"),
        ("no addresses", b"PROXY TCP4\r\n"),
        ("one address", b"PROXY TCP4 192.0.2.1\r\n"),
        ("one port", b"PROXY TCP4 192.0.2.1 198.51.100.2 4711\r\n"),
        ("a third port", b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443 1\r\n"),
        ("two spaces", b"PROXY TCP4  192.0.2.1 198.51.100.2 4711 443\r\n"),
        ("a space at the end", b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443 \r\n"),
        ("a tab", b"PROXY TCP4\t192.0.2.1 198.51.100.2 4711 443\r\n"),
        ("IPv6 in TCP4", b"PROXY TCP4 2001:db8::1 2001:db8::2 4711 443\r\n"),
        ("IPv4 in TCP6", b"PROXY TCP6 192.0.2.1 198.51.100.2 4711 443\r\n"),
        ("a name", b"PROXY TCP4 desk.example 198.51.100.2 4711 443\r\n"),
        ("an invalid destination", b"PROXY TCP4 192.0.2.1 nowhere 4711 443\r\n"),
        ("a large port", b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n"),
        ("a port with a sign", b"PROXY TCP4 192.0.2.1 198.51.100.2 +4711 443\r\n"),
        ("a port with a zero", b"PROXY TCP4 192.0.2.1 198.51.100.2 04711 443\r\n"),
        ("no UTF-8", b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 \xff\r\n"),
        ("a long line", long.as_bytes()),
        ("a long line without an end", &[b"PROXY ".to_vec(), vec![b'x'; LONGEST_LINE]].concat()),
        ("another signature", &other_signature),
        ("v1 as v2", &binary(0x11, 0x11, &ipv4())),
        ("v3", &binary(0x31, 0x11, &ipv4())),
        ("another command", &binary(0x22, 0x11, &ipv4())),
        ("UDP over IPv4", &binary(0x21, 0x12, &ipv4())),
        ("UDP over IPv6", &binary(0x21, 0x22, &ipv6())),
        ("datagrams of a Unix socket", &binary(0x21, 0x32, &[b'/'; 216])),
        ("another family of v2", &binary(0x21, 0x41, &ipv4())),
        ("a short address", &binary(0x21, 0x11, &ipv4()[..11])),
        ("a short IPv6 address", &binary(0x21, 0x21, &ipv6()[..35])),
        ("a short path", &binary(0x21, 0x31, &[b'/'; 215])),
        ("too long", &binary(0x21, 0x11, &[ipv4(), vec![0; LONGEST_REST - 11]].concat())),
    ];
    for (case, bytes) in table {
        assert_eq!(parse(bytes), Err(InvalidHeader), "{case}");
    }
}

#[test]
fn too_long_a_header_is_refused_before_it_is_read() {
    let header = binary(0x21, 0x11, &[0; LONGEST_REST + 1]);
    assert_eq!(parse(&header[..FIXED]), Err(InvalidHeader));
}

#[tokio::test]
async fn what_follows_the_header_is_kept() {
    for (case, bytes, _) in valid_headers() {
        let all = [&bytes[..], b"and more"].concat();
        let (mut from, rest) = (&all[..], b"and more");
        let (_, mut behind) = read(&mut from).await.unwrap_or_else(|error| panic!("{case}: {error:?}"));
        behind.extend_from_slice(from);
        assert_eq!(behind, rest, "{case}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_within_the_header_is_refused() {
    for (case, bytes, _) in valid_headers() {
        for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            let mut from = &bytes[..length];
            assert_eq!(read(&mut from).await, Err(InvalidHeader), "{case}: {length} bytes");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(start in 0..3usize, rest in proptest::collection::vec(any::<u8>(), 0..200)) {
        let start: &[u8] = [&b""[..], b"PROXY TCP4 ", SIGNATURE][start];
        let bytes = [start, &rest].concat();
        if let Ok(Some(header)) = parse(&bytes) {
            prop_assert!(header.length <= bytes.len());
            prop_assert_eq!(parse(&bytes[..header.length]), Ok(Some(header)));
        }
    }
}

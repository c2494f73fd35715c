//! The PROXY protocol: load balancers that are trusted name the client of each connection, and nobody else does.

use std::net::Ipv4Addr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::*;

const LISTENER: &str = "[[server.listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n";

/// A gateway whose second listener expects the PROXY protocol.
async fn start(settings: &str) -> Gateway {
    Gateway::setup().toml(&format!("{settings}\n{LISTENER}")).start().await
}

fn version1(client: Ipv4Addr) -> Vec<u8> {
    format!("PROXY TCP4 {client} 127.0.0.1 4711 443\r\n").into_bytes()
}

/// A header of version 2 with this command and client.
fn version2(command: u8, client: Ipv4Addr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([command, 0x11, 0, 12]);
    header.extend(client.octets());
    header.extend([127, 0, 0, 1]);
    header.extend(4711_u16.to_be_bytes());
    header.extend(443_u16.to_be_bytes());
    header
}

const CLIENT: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

/// Sends a header, and a request behind it, to the second listener.
async fn get_behind(desk: &Gateway, header: &[u8], headers: &str) -> Option<Response> {
    let mut connection = Connection::open(desk.listener(1)).await;
    connection.send(&[header, &raw_request(desk, "GET /public/x", headers, b"")].concat()).await;
    connection.response().await
}

async fn refused(desk: &Gateway, reason: &str) -> f64 {
    desk.metric("deskgate_connections_refused_total", &[&format!("reason=\"{reason}\"")]).await
}

#[tokio::test]
async fn the_client_of_the_header_is_the_client_of_every_request() {
    let rule = "[[rule]]\nname = \"inside\"\npath = \"/inside/{*rest}\"\nupstream = \"helpdesk\"\npublic = true\n\
                networks = [\"203.0.113.0/24\"]\n";
    let desk = Gateway::setup().more_rules(rule).toml(LISTENER).start().await;
    for (case, header) in [("version 1", version1(CLIENT)), ("version 2", version2(0x21, CLIENT))] {
        let mut connection = Connection::open(desk.listener(1)).await;
        connection.send(&header).await;
        for _ in 0..2 {
            connection.send(&raw_request(&desk, "GET /inside/x", "X-Forwarded-For: 10.1.1.1\r\n", b"")).await;
            connection.response().await.expect("a response").expect_status(200);
            let seen = desk.upstream.last_request();
            assert_eq!(seen.header("x-forwarded-for"), Some("203.0.113.7"), "{case}");
        }
    }
    desk.wait_for_log(&["/inside/x", "203.0.113.7"]).await;
    let other = get_behind(&desk, &version1(Ipv4Addr::new(198, 51, 100, 1)), "").await;
    assert_eq!(other.expect("a response").status, 200);
    let mut connection = Connection::open(desk.listener(1)).await;
    connection.send(&version1(Ipv4Addr::new(198, 51, 100, 1))).await;
    connection.send(&raw_request(&desk, "GET /inside/x", "", b"")).await;
    connection.response().await.expect("a response").expect_code(1003);
}

#[tokio::test]
async fn connections_of_the_load_balancer_itself_keep_its_address() {
    let desk = start("").await;
    get_behind(&desk, &version2(0x20, CLIENT), "").await.expect("a response").expect_status(200);
    assert_eq!(desk.upstream.last_request().header("x-forwarded-for"), Some("127.0.0.1"));
}

#[tokio::test]
async fn client_without_an_address_is_no_trusted_proxy() {
    let desk = start("").await;
    for (case, header) in [
        ("unknown", b"PROXY UNKNOWN\r\n".to_vec()),
        ("no family", [b"\r\n\r\n\0\r\nQUIT\n".to_vec(), vec![0x21, 0, 0, 0]].concat()),
    ] {
        let forged = get_behind(&desk, &header, "X-Forwarded-For: 203.0.113.7\r\n").await;
        forged.expect("a response").expect_status(200);
        assert_eq!(desk.upstream.last_request().header("x-forwarded-for"), Some("0.0.0.0"), "{case}");
    }
}

#[tokio::test]
async fn header_of_an_untrusted_peer_is_refused() {
    let desk = start("[server]\ntrusted_proxies = [\"127.0.0.2/32\"]").await;
    for header in [version1(CLIENT), version2(0x21, CLIENT), Vec::new()] {
        assert!(get_behind(&desk, &header, "").await.is_none(), "{header:?}");
    }
    eventually("three refusals", || async { (refused(&desk, "untrusted_proxy").await == 3.0).then_some(()) }).await;
    assert!(desk.upstream.requests().is_empty());
    desk.anonymous().get("/public/x").await.expect_status(200);
}

#[tokio::test]
async fn connection_without_a_valid_header_is_refused() {
    let desk = start("[limits]\nhead_deadline = \"300ms\"").await;
    let cases: &[(&str, &[u8])] = &[
        ("no header", b""),
        ("another version", b"PROXY TCP5 203.0.113.7 127.0.0.1 4711 443\r\n"),
        ("no address", b"PROXY TCP4 garbage 127.0.0.1 4711 443\r\n"),
        ("another command", &version2(0x22, CLIENT)),
        ("an endless line", &[b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 1000]].concat()),
    ];
    for (case, header) in cases {
        assert!(get_behind(&desk, header, "").await.is_none(), "{case}");
    }
    // Neither a silent connection nor half a header waits for ever.
    for begin in [&b""[..], b"PROXY TCP4 203.0", &version2(0x21, CLIENT)[..20]] {
        let mut connection = Connection::open(desk.listener(1)).await;
        connection.send(begin).await;
        assert!(within(TEST_TIMEOUT, "the end", connection.until_end()).await.is_empty());
    }
    let expected = cases.len() as f64 + 3.0;
    eventually("the refusals", || async { (refused(&desk, "proxy_header").await == expected).then_some(()) }).await;
    assert!(desk.upstream.requests().is_empty());
    get_behind(&desk, &version1(CLIENT), "").await.expect("a response").expect_status(200);
}

#[tokio::test]
async fn header_may_arrive_in_pieces() {
    let desk = start("").await;
    for header in [version1(CLIENT), version2(0x21, CLIENT)] {
        let mut connection = Connection::open(desk.listener(1)).await;
        for byte in header.chunks(1) {
            connection.send(byte).await;
        }
        connection.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
        connection.response().await.expect("a response").expect_status(200);
        assert_eq!(desk.upstream.last_request().header("x-forwarded-for"), Some("203.0.113.7"));
    }
}

#[tokio::test]
async fn header_on_a_listener_without_the_protocol_is_no_request() {
    let desk = Gateway::start().await;
    for header in [version1(CLIENT), version2(0x21, CLIENT)] {
        let response = desk.send_raw(&[&header[..], &raw_request(&desk, "GET /public/x", "", b"")].concat()).await;
        assert!(response.is_none_or(|response| response.status == 400));
    }
    assert!(desk.upstream.requests().is_empty());
}

#[tokio::test]
async fn connections_are_limited_by_the_client_of_the_header() {
    let desk = start("[limits]\nconnections_per_address = 2").await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(desk.listener(1)).await;
        connection.send(&[version1(CLIENT), raw_request(&desk, "GET /public/x", "", b"")].concat()).await;
        connection.response().await.expect("a response").expect_status(200);
        open.push(connection);
    }
    assert!(get_behind(&desk, &version1(CLIENT), "").await.is_none(), "a third connection");
    let other = Ipv4Addr::new(203, 0, 113, 8);
    get_behind(&desk, &version2(0x21, other), "").await.expect("another client").expect_status(200);
    drop(open);
    eventually("a free place", || async { get_behind(&desk, &version1(CLIENT), "").await }).await.expect_status(200);
}

#[tokio::test]
async fn tls_handshake_follows_the_header() {
    let desk = Gateway::setup().tls().toml(&format!("{LISTENER}tls = true\n")).start().await;
    for header in [version1(CLIENT), version2(0x21, CLIENT)] {
        let mut stream = TcpStream::connect(desk.listener(1)).await.expect("a connection");
        stream.write_all(&header).await.expect("sent");
        let client_tls = desk.server_address().client_tls.expect("TLS");
        let stream = within(TEST_TIMEOUT, "a handshake", client_tls.connect(stream)).await.expect("a handshake");
        let mut connection = Connection::from_stream(Stream::Tls(Box::new(stream)));
        connection.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
        connection.response().await.expect("a response").expect_status(200);
        assert_eq!(desk.upstream.last_request().header("x-forwarded-for"), Some("203.0.113.7"));
    }
}

//! TLS to upstreams: the upstream's certificate is verified, and the gateway shows its own where one is asked for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::support::*;

/// A TCP proxy in front of the recording upstream that speaks TLS to the gateway.
struct TlsFront {
    address: std::net::SocketAddr,
    accepted: Arc<AtomicUsize>,
    acceptor: JoinHandle<()>,
}

impl TlsFront {
    async fn start(tls: TlsAcceptor, upstream: &Upstream) -> TlsFront {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (behind, accepted) = (upstream.address(), Arc::new(AtomicUsize::new(0)));
        let counter = accepted.clone();
        let acceptor = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, counter) = (tls.clone(), counter.clone());
                tokio::spawn(async move {
                    let Ok(mut secured) = tls.accept(stream).await else { return };
                    counter.fetch_add(1, Ordering::SeqCst);
                    let Ok(mut plain) = tokio::net::TcpStream::connect(behind).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut secured, &mut plain).await;
                    let _ = secured.shutdown().await;
                });
            }
        });
        TlsFront { address, accepted, acceptor }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("a file");
    file.display().to_string()
}

/// Starts a gateway with a TLS upstream.
async fn start_with(front: &TlsFront, tls: &str) -> Gateway {
    let settings =
        format!("[upstreams.helpdesk]\naddresses = [\"{}\"]\n[upstreams.helpdesk.tls]\n{tls}", front.address);
    Gateway::setup().tls().toml(&settings).start().await
}

#[tokio::test]
async fn every_lane_uses_tls() {
    let (upstream, authority, folder) =
        (Upstream::start().await, CertificateAuthority::new(), tempfile::tempdir().unwrap());
    let front = TlsFront::start(authority.issue().acceptor(), &upstream).await;
    let desk =
        start_with(&front, &format!("ca_file = {:?}", write(folder.path(), "ca.pem", &authority.certificate()))).await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/fast").await.expect_status(200);
    xiaoming.send("POST", "/api/desk/body", &[], b"body").await.expect_status(200);
    xiaoming.http2().await.send("PUT", "/api/desk/http2", &[], b"body").await.expect_status(200);
    xiaoming.websocket("/ws/employee").await.echo("hello").await;
    let targets: Vec<String> = upstream.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/api/desk/fast", "/api/desk/body", "/api/desk/http2", "/ws/employee"]);
    let before = front.accepted();
    for _ in 0..10 {
        xiaoming.get("/api/desk/fast").await.expect_status(200);
    }
    assert!(front.accepted() <= before + 1, "connections are reused");
}

#[tokio::test]
async fn certificate_of_another_authority_or_name_is_1502() {
    let (upstream, authority, folder) =
        (Upstream::start().await, CertificateAuthority::new(), tempfile::tempdir().unwrap());
    let ca = write(folder.path(), "ca.pem", &authority.certificate());
    let other = write(folder.path(), "other.pem", &CertificateAuthority::new().certificate());
    let front = TlsFront::start(authority.issue().acceptor(), &upstream).await;
    for (case, tls) in [
        ("another authority", format!("ca_file = {other:?}")),
        ("the system's authorities", "server_name = \"127.0.0.1\"".to_owned()),
        ("another name", format!("ca_file = {ca:?}\nserver_name = \"desk.example.com\"")),
    ] {
        let desk = start_with(&front, &tls).await;
        let xiaoming = desk.sign_in("u1001").await;
        for (method, body) in [("GET", &b""[..]), ("POST", b"body")] {
            let refused = xiaoming.send(method, "/api/desk/x", &[], body).await;
            assert_eq!(refused.expect_code(1502).status, 502, "{case}");
        }
        xiaoming.handshake("/ws/employee").expect_refused().await.expect_code(1502);
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn configured_name_replaces_that_of_the_address() {
    let (upstream, authority, folder) =
        (Upstream::start().await, CertificateAuthority::new(), tempfile::tempdir().unwrap());
    let ca = write(folder.path(), "ca.pem", &authority.certificate());
    let front = TlsFront::start(authority.issue_for(&["desk.example.com"]).acceptor(), &upstream).await;
    let desk = start_with(&front, &format!("ca_file = {ca:?}\nserver_name = \"desk.example.com\"")).await;
    desk.sign_in("u1001").await.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn unverified_upstream_is_reached_and_warned_about() {
    let (upstream, authority) = (Upstream::start().await, CertificateAuthority::new());
    let front = TlsFront::start(authority.issue_for(&["other.example.com"]).acceptor(), &upstream).await;
    let desk = start_with(&front, "verify = false").await;
    desk.sign_in("u1001").await.get("/api/desk/x").await.expect_status(200);
    let said = desk.command(&["check"]).await.output_text();
    assert!(said.contains("upstreams.helpdesk.tls.verify = false"), "{said}");
}

#[tokio::test]
async fn gateway_shows_its_certificate_where_one_is_asked_for() {
    let (upstream, authority, folder) =
        (Upstream::start().await, CertificateAuthority::new(), tempfile::tempdir().unwrap());
    let clients = CertificateAuthority::new();
    let own = clients.issue_for(&["gateway.example.com"]);
    let ca = write(folder.path(), "ca.pem", &authority.certificate());
    let (cert, key) = (write(folder.path(), "own.pem", &own.certificate), write(folder.path(), "own.key", &own.key));
    let front = TlsFront::start(authority.issue().acceptor_with(&[], Some(&clients)), &upstream).await;
    let without = start_with(&front, &format!("ca_file = {ca:?}")).await;
    without.sign_in("u1001").await.get("/api/desk/x").await.expect_code(1502);
    let desk = start_with(&front, &format!("ca_file = {ca:?}\ncert_file = {cert:?}\nkey_file = {key:?}")).await;
    desk.sign_in("u1001").await.get("/api/desk/x").await.expect_status(200);
}

#[tokio::test]
async fn faulty_files_are_refused_at_the_start_and_by_check() {
    let (authority, folder) = (CertificateAuthority::new(), tempfile::tempdir().unwrap());
    let (one, two) = (authority.issue(), authority.issue());
    let text = write(folder.path(), "text.pem", "no certificate");
    let (cert, key) = (write(folder.path(), "one.pem", &one.certificate), write(folder.path(), "two.key", &two.key));
    for (tls, expected) in [
        ("ca_file = \"/missing.pem\"".to_owned(), "upstreams.helpdesk.tls.ca_file: /missing.pem"),
        (format!("ca_file = {text:?}"), "the file has no certificate in PEM"),
        (format!("cert_file = {cert:?}\nkey_file = {key:?}"), "upstreams.helpdesk.tls.cert_file"),
        (format!("cert_file = {cert:?}"), "cert_file and key_file must be set together"),
    ] {
        let setup = || Gateway::setup().toml(&format!("[upstreams.helpdesk.tls]\n{tls}"));
        let failure = setup().try_start().await.err().expect("a refused start");
        assert!(failure.stderr.contains(expected), "{tls}: {}", failure.stderr);
        let check = setup().write_files().await.command(&["check"]).await;
        let said = check.output_text();
        assert!(!check.status.success() && said.contains(expected), "{tls}: {said}");
    }
}

#[tokio::test]
async fn upstream_gets_the_configured_host() {
    let desk = Gateway::setup().tls().toml("[upstreams.helpdesk]\nhost = \"desk.internal:8443\"\n").start().await;
    let xiaoming = desk.sign_in("u1001").await;
    xiaoming.get("/api/desk/fast").await.expect_status(200);
    xiaoming.send("POST", "/api/desk/body", &[], b"body").await.expect_status(200);
    let http2 = xiaoming.http2().await;
    http2.get("/api/desk/http2").await.expect_status(200);
    http2.send("PUT", "/api/desk/http2", &[], b"body").await.expect_status(200);
    xiaoming.websocket("/ws/employee").await.echo("hello").await;
    let requests = desk.upstream.requests();
    assert_eq!(requests.len(), 5);
    for request in requests {
        assert_eq!(request.header("host"), Some("desk.internal:8443"), "{}", request.target);
        assert_eq!(request.header("x-forwarded-host"), Some(&*desk.address().to_string()), "{}", request.target);
    }
}

//! Several certificates: chosen by host name, renewed while the gateway runs, and required of clients.

use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::support::*;

/// An authority, and the files of the certificates that it issued.
struct Certificates {
    authority: CertificateAuthority,
    folder: TempDir,
}

impl Certificates {
    fn new() -> Certificates {
        Certificates { authority: CertificateAuthority::new(), folder: tempfile::tempdir().expect("a folder") }
    }

    fn files(&self, stem: &str) -> CertificateFiles {
        CertificateFiles::named(self.folder.path(), stem)
    }

    /// Writes a certificate for these names.
    fn write(&self, stem: &str, names: &[&str]) -> CertificateAndKey {
        let pair = self.authority.issue_for(names);
        self.files(stem).write(&pair);
        pair
    }

    /// The settings of one HTTPS listener with these certificates.
    fn settings(&self, stems: &[&str]) -> String {
        let entry = |stem: &&str| {
            let files = self.files(stem);
            let (certificate, key) = (files.certificate.display(), files.key.display());
            format!("[[server.certificates]]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"\n")
        };
        let listener = "[server]\nlisten = []\n[[server.listeners]]\naddress = \"127.0.0.1:0\"\ntls = true\n";
        format!("{listener}{}", stems.iter().map(entry).collect::<String>())
    }

    /// The certificate that the gateway shows to a client that asks for a host, or for none.
    async fn shown(&self, desk: &Gateway, host: Option<&str>) -> Vec<u8> {
        let client_tls = self.authority.client_tls();
        let client_tls = match host {
            Some(host) => client_tls.with_server_name(host),
            None => client_tls,
        };
        let server = ServerAddress { address: desk.address(), client_tls: Some(client_tls) };
        Connection::open(server).await.stream().certificate().expect("a certificate")
    }
}

#[tokio::test]
async fn certificate_is_chosen_by_the_host_that_the_client_asks_for() {
    let certificates = Certificates::new();
    let first = certificates.write("first", &["127.0.0.1", "first.example"]);
    let wildcard = certificates.write("wildcard", &["*.example.com"]);
    let exact = certificates.write("exact", &["desk.example.com", "unknown.example"]);
    let desk = Gateway::setup().toml(&certificates.settings(&["first", "wildcard", "exact"])).start().await;
    for (host, expected) in [
        (None, &first),
        (Some("first.example"), &first),
        (Some("desk.example.com"), &exact),
        (Some("DESK.example.com"), &exact),
        (Some("chat.example.com"), &wildcard),
    ] {
        assert!(certificates.shown(&desk, host).await == expected.der, "{host:?}");
    }
    // Clients refuse the default certificate for a host that it does not name.
    let client_tls = certificates.authority.client_tls().with_server_name("other.example");
    let server = ServerAddress { address: desk.address(), client_tls: Some(client_tls) };
    assert!(Connection::try_open(server).await.is_err(), "the first certificate does not name the host");
}

#[tokio::test]
async fn certificate_is_replaced_when_its_file_changes() {
    let certificates = Certificates::new();
    certificates.write("first", &["127.0.0.1"]);
    certificates.write("second", &["desk.example"]);
    let desk = Gateway::setup().toml(&certificates.settings(&["first", "second"])).start().await;
    let server = ServerAddress { address: desk.address(), client_tls: Some(certificates.authority.client_tls()) };
    let mut open = Connection::open(server.clone()).await;
    assert_eq!(desk.metric("deskgate_tls_reload_success", &[]).await, 1.0);
    for certificate in ["127.0.0.1", "desk.example"] {
        let label = format!("certificate=\"{certificate}\"");
        let expiry = desk.metric("deskgate_tls_not_after_seconds", &[&label]).await;
        assert!(expiry > 1_700_000_000.0, "{certificate}: {expiry}");
    }

    let renewed = certificates.write("second", &["desk.example"]);
    eventually("the renewed certificate", || async {
        (certificates.shown(&desk, Some("desk.example")).await == renewed.der).then_some(())
    })
    .await;
    let line = desk.wait_for_log(&["certificates reloaded: a file changed"]).await;
    assert!(line.contains("127.0.0.1 until ") && line.contains("desk.example until "), "{line}");

    // The key is renewed and the certificate is not: nothing changes, until both are.
    let next = certificates.authority.issue_for(&["desk.example"]);
    let files = certificates.files("second");
    std::fs::write(&files.key, &next.key).expect("a key file");
    eventually("the refusal", || async {
        (desk.metric("deskgate_tls_reload_success", &[]).await == 0.0).then_some(())
    })
    .await;
    let (certificate, key) = (files.certificate.display().to_string(), files.key.display().to_string());
    desk.wait_for_log(&["certificates not reloaded", &certificate, &key, "does not belong"]).await;
    assert!(certificates.shown(&desk, Some("desk.example")).await == renewed.der, "the previous one stays in use");
    files.write(&next);
    eventually("the next certificate", || async {
        (certificates.shown(&desk, Some("desk.example")).await == next.der).then_some(())
    })
    .await;
    assert_eq!(desk.metric("deskgate_tls_reload_success", &[]).await, 1.0);

    open.send(&raw_request(&desk, "GET /public/x", "", b"")).await;
    open.response().await.expect("a response on a connection with the first certificate").expect_status(200);
}

#[tokio::test]
async fn sighup_reloads_all_certificates_or_none() {
    let certificates = Certificates::new();
    let before = certificates.write("first", &["127.0.0.1"]);
    certificates.write("second", &["desk.example"]);
    let desk = Gateway::setup().toml(&certificates.settings(&["first", "second"])).start().await;
    let after = certificates.write("first", &["127.0.0.1"]);
    std::fs::write(certificates.files("second").key, "garbage").expect("a key file");
    desk.signal("HUP");
    desk.wait_for_log(&["reload refused", "server.certificates", "second.key.pem"]).await;
    assert!(certificates.shown(&desk, None).await == before.der, "half a reload");
    certificates.write("second", &["desk.example"]);
    desk.signal("HUP");
    eventually("the new certificate", || async { (certificates.shown(&desk, None).await == after.der).then_some(()) })
        .await;
}

// Client certificates.

#[tokio::test]
async fn listener_with_a_client_ca_accepts_its_certificates_and_no_others() {
    let (clients, strangers) = (CertificateAuthority::new(), CertificateAuthority::new());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("clients.pem");
    std::fs::write(&file, clients.certificate()).expect("a file");
    let listener = format!(
        "[[server.listeners]]\naddress = \"127.0.0.1:0\"\ntls = true\nclient_ca_file = \"{}\"\n",
        file.display()
    );
    let desk = Gateway::setup().tls().toml(&listener).start().await;
    let (own, foreign) = (clients.issue_for(&["a client"]), strangers.issue_for(&["a stranger"]));
    for version in [&TLS12, &TLS13] {
        for (case, identity, accepted) in
            [("its certificate", Some(&own), true), ("another's", Some(&foreign), false), ("none", None, false)]
        {
            let answers = get_with(&desk, 1, identity, version).await;
            assert_eq!(answers, accepted, "{case}, {version:?}");
            assert!(get_with(&desk, 0, identity, version).await, "{case}: the other listener asks for none");
        }
    }
    let refused = desk.metric("deskgate_connections_refused_total", &["reason=\"tls_handshake\""]).await;
    assert_eq!(refused, 4.0);

    // The authority changes: what it issued before is refused from the next handshake on.
    std::fs::write(&file, strangers.certificate()).expect("a file");
    desk.signal("HUP");
    eventually("the other authority", || async { get_with(&desk, 1, Some(&foreign), &TLS13).await.then_some(()) })
        .await;
    assert!(!get_with(&desk, 1, Some(&own), &TLS13).await, "a certificate of the previous authority");
}

/// Whether a client with this certificate gets a response from a listener.
async fn get_with(
    desk: &Gateway,
    listener: usize,
    identity: Option<&CertificateAndKey>,
    version: &'static tokio_rustls::rustls::SupportedProtocolVersion,
) -> bool {
    let server = desk.tls_listener(listener);
    let client_tls = server.client_tls.as_ref().map(|client_tls| client_tls.with_identity(identity, version));
    let Ok(mut connection) = Connection::try_open(ServerAddress { client_tls, ..server }).await else { return false };
    // With TLS 1.3 a client learns only from the first read that it was refused.
    connection.send(&raw_request(desk, "GET /public/x", "", b"")).await;
    matches!(connection.try_response(BodyFraming::FromHead).await, Ok(Some(response)) if response.status == 200)
}

// OCSP.

/// Accepts every certificate and keeps the OCSP response that came with it.
#[derive(Debug, Default)]
struct StapleRecorder(Mutex<Vec<u8>>);

impl StapleRecorder {
    fn staple(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl ServerCertVerifier for StapleRecorder {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        staple: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.0.lock().unwrap() = staple.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The OCSP response that the gateway staples to its certificate.
async fn staple(desk: &Gateway) -> Vec<u8> {
    let recorder = Arc::new(StapleRecorder::default());
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .dangerous()
        .with_custom_certificate_verifier(recorder.clone())
        .with_no_client_auth();
    let stream = TcpStream::connect(desk.address()).await.expect("a connection");
    let name = ServerName::try_from("desk.example").expect("a name");
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    within(TEST_TIMEOUT, "a handshake", handshake).await.expect("a handshake");
    recorder.staple()
}

#[tokio::test]
async fn ocsp_response_is_stapled_and_renewed() {
    let certificates = Certificates::new();
    certificates.write("first", &["desk.example"]);
    let file = certificates.folder.path().join("first.ocsp");
    let response = |number: u8| vec![0x30, 3, 0x0a, 1, number];
    std::fs::write(&file, response(1)).expect("a file");
    let settings = format!("{}ocsp_file = \"{}\"\n", certificates.settings(&["first"]), file.display());
    let desk = Gateway::setup().toml(&settings).start().await;
    assert_eq!(staple(&desk).await, response(1));
    std::fs::write(&file, response(2)).expect("a file");
    eventually("the renewed response", || async { (staple(&desk).await == response(2)).then_some(()) }).await;
}

// `deskgate check`.

/// Runs `deskgate check`. Returns whether it found no fault, and what it printed.
async fn check(settings: &str) -> (bool, String) {
    let output = Gateway::setup().toml(settings).write_files().await.command(&["check"]).await;
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn check_loads_certificates_as_a_start_does() {
    let certificates = Certificates::new();
    certificates.write("one", &["127.0.0.1"]);
    let other = certificates.write("other", &["desk.example"]);
    let settings = certificates.settings(&["one", "other"]);
    let (sound, printed) = check(&settings).await;
    assert!(sound, "{printed}");

    let expect_fault = async |case: &str, parts: &[&str]| {
        let (sound, printed) = check(&settings).await;
        assert!(!sound, "{case}: {printed}");
        assert!(parts.iter().all(|part| printed.contains(part)), "{case}: {printed}");
        let refused = match Gateway::setup().toml(&settings).try_start().await {
            Ok(_) => panic!("{case}: the gateway starts"),
            Err(refused) => refused.stderr,
        };
        assert!(parts.iter().all(|part| refused.contains(part)), "{case}: {refused}");
    };
    let (one, files) = (certificates.files("one"), certificates.files("other"));
    std::fs::copy(&one.key, &files.key).expect("a key file");
    let (certificate, key) = (files.certificate.display().to_string(), files.key.display().to_string());
    expect_fault("another key", &["server.certificates", &certificate, &key, "does not belong"]).await;
    files.write(&other);
    std::fs::remove_file(&files.certificate).expect("a certificate file");
    expect_fault("no certificate", &["server.certificates", &certificate, "No such file"]).await;
    files.write(&other);
    let (sound, printed) = check(&format!("{settings}ocsp_file = \"/no/such/file\"\n")).await;
    assert!(!sound && printed.contains("/no/such/file"), "{printed}");
    let ca = "[[server.listeners]]\naddress = \"127.0.0.1:0\"\ntls = true\nclient_ca_file = \"/no/such/ca\"\n";
    let (sound, printed) =
        check(&settings.replace("[[server.certificates]]", &format!("{ca}[[server.certificates]]"))).await;
    assert!(!sound && printed.contains("server.listeners") && printed.contains("/no/such/ca"), "{printed}");
}

#[tokio::test]
async fn start_and_check_warn_if_no_certificate_names_the_public_url() {
    let certificates = Certificates::new();
    certificates.write("one", &["desk.example"]);
    let settings = certificates.settings(&["one"]);
    for (url, warns) in [("https://127.0.0.1:0", true), ("https://desk.example", false), ("http://127.0.0.1:0", false)]
    {
        let settings = settings.replace("[server]\n", &format!("[server]\npublic_url = \"{url}\"\n"));
        let (sound, printed) = check(&settings).await;
        assert!(sound, "{url}: {printed}");
        assert_eq!(printed.contains("no certificate names"), warns, "{url}: {printed}");
    }
    let desk =
        Gateway::setup().toml(&settings.replace("[server]\n", "[server]\npublic_url = \"https://127.0.0.1:0\"\n"));
    desk.start().await.wait_for_log(&["WARN", "no certificate names"]).await;
}

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;

use super::*;

/// Files of a certificate for these names.
fn issue(folder: &Path, stem: &str, names: &[&str]) -> CertificateConfig {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(names).expect("names").self_signed(&key).expect("a certificate");
    let files = CertificateConfig {
        cert_file: folder.join(format!("{stem}.crt")),
        key_file: folder.join(format!("{stem}.key")),
        ocsp_file: PathBuf::new(),
    };
    write_pem(&files.cert_file, "CERTIFICATE", certificate.der());
    write_pem(&files.key_file, "PRIVATE KEY", key.serialized_der());
    files
}

fn write_pem(file: &Path, kind: &str, der: &[u8]) {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    std::fs::write(file, format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")).expect("a file");
}

fn read(files: &CertificateConfig) -> Certificate {
    pingora_core::tls::install_default_crypto_provider();
    Certificate::read(files).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn the_certificate_is_chosen_by_exact_name_then_by_wildcard_then_the_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = [
        ("default", &["default.example"][..]),
        ("wildcard", &["*.example.com"]),
        ("exact", &["desk.example.com", "Other.Example.ORG"]),
        ("second", &["desk.example.com"]),
    ];
    let issued: Vec<(&str, Certificate)> =
        all.iter().map(|(name, hosts)| (*name, read(&issue(folder.path(), name, hosts)))).collect();
    let chain = |name: &str| -> Vec<CertificateDer<'static>> {
        let found = issued.iter().find(|(other, _)| *other == name).expect("a certificate");
        found.1.certified_key.cert.clone()
    };
    let certificates: Vec<Certificate> = issued.iter().map(|(_, certificate)| certificate.clone()).collect();
    let set = CertificateSet::new(&certificates).expect("certificates");
    for (host, expected) in [
        (Some("desk.example.com"), "exact"),
        (Some("DESK.example.com"), "exact"),
        (Some("other.example.org"), "exact"),
        (Some("chat.example.com"), "wildcard"),
        (Some("a.chat.example.com"), "default"),
        (Some("example.com"), "default"),
        (Some("nowhere.example"), "default"),
        (Some(""), "default"),
        (None, "default"),
    ] {
        assert_eq!(set.choose(host).cert, chain(expected), "{host:?}");
    }
    assert!(CertificateSet::new(&[]).is_none());
}

#[test]
fn a_certificate_is_labelled_by_its_first_name_or_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    for (names, label) in
        [(&["desk.example", "other.example"][..], "desk.example"), (&["127.0.0.1"], "127.0.0.1"), (&[], "file")]
    {
        assert_eq!(read(&issue(folder.path(), "file", names)).label(), label);
    }
}

#[test]
fn a_certificate_names_its_hosts() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificate =
        read(&issue(folder.path(), "file", &["desk.example", "*.example.com", "192.0.2.1", "2001:db8::1"]));
    for (host, expected) in [
        ("desk.example", true),
        ("DESK.example", true),
        ("a.example.com", true),
        ("a.b.example.com", false),
        ("example.com", false),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        ("[2001:db8::1]", true),
    ] {
        assert_eq!(certificate.names(host), expected, "{host}");
    }
}

#[test]
fn expired_and_expiring_certificates_are_worth_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = read(&issue(folder.path(), "file", &["desk.example"]));
    let end = certificate.expires_at();
    let days = |days: u64| std::time::Duration::from_secs(days * 24 * 3600);
    assert_eq!(certificate.expiry_warning(end.minus(days(15))), None);
    let soon = certificate.expiry_warning(end.minus(days(3))).expect("a warning");
    assert!(soon.contains("desk.example expires within 4 days"), "{soon}");
    let over = certificate.expiry_warning(end.plus(days(1))).expect("a warning");
    assert!(over.contains("desk.example expired at "), "{over}");
}

#[test]
fn a_refusal_names_both_files_and_the_fault() {
    pingora_core::tls::install_default_crypto_provider();
    let folder = tempfile::tempdir().expect("a folder");
    let (one, other) = (issue(folder.path(), "one", &["a.example"]), issue(folder.path(), "other", &["a.example"]));
    let garbage = folder.path().join("garbage");
    std::fs::write(&garbage, "nothing").expect("a file");
    let with = |change: &dyn Fn(&mut CertificateConfig)| {
        let mut files = one.clone();
        change(&mut files);
        files
    };
    for (case, files, fault) in [
        (
            "another key",
            with(&|files| files.key_file.clone_from(&other.key_file)),
            "does not belong to the certificate",
        ),
        ("no certificate", with(&|files| files.cert_file = "/none.crt".into()), "the certificate: No such file"),
        ("no key", with(&|files| files.key_file = "/none.key".into()), "the private key: No such file"),
        (
            "an empty certificate",
            with(&|files| files.cert_file.clone_from(&garbage)),
            "the certificate: the file has none",
        ),
        ("an empty key", with(&|files| files.key_file.clone_from(&garbage)), "the private key: the file has none"),
        ("no OCSP response", with(&|files| files.ocsp_file = "/none.ocsp".into()), "/none.ocsp: No such file"),
        ("a wrong OCSP response", with(&|files| files.ocsp_file.clone_from(&garbage)), "not an OCSP response in DER"),
    ] {
        let why = Certificate::read(&files).err().unwrap_or_else(|| panic!("{case}: accepted"));
        for part in [&files.cert_file.display().to_string(), &files.key_file.display().to_string(), fault] {
            assert!(why.contains(part), "{case}: no {part} in {why}");
        }
    }
}

#[test]
fn an_ocsp_response_is_stapled() {
    let folder = tempfile::tempdir().expect("a folder");
    let ocsp_file = folder.path().join("staple.der");
    std::fs::write(&ocsp_file, [0x30, 3, 0x0a, 1, 0]).expect("a file");
    let files = CertificateConfig { ocsp_file, ..issue(folder.path(), "file", &["desk.example"]) };
    assert_eq!(read(&files).certified_key.ocsp.as_deref(), Some(&[0x30, 3, 0x0a, 1, 0][..]));
}

use std::path::Path;

use super::super::{Override, load};

const FILE: &str = r#"
[server]
data_dir = "state"
secret_file = "secrets/fleet"
old_secret_files = ["secrets/before", "/absolute/before"]
tls = { cert_file = "tls.crt", key_file = "../tls.key" }
[platform]
corp_id = "ww1"
secret_file = "secrets/wecom"
[otp]
old_key_files = ["otp.key"]
[[server.listeners]]
address = "127.0.0.1:1"
tls = true
client_ca_file = "clients.pem"
[[server.certificates]]
cert_file = "two.crt"
key_file = "two.key"
ocsp_file = "two.ocsp"
[upstreams.desk]
addresses = ["127.0.0.1:1"]
tls = { ca_file = "desk.pem" }
"#;

/// A folder with a configuration file and the files that a valid configuration needs.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("secrets")).expect("a folder");
    std::fs::write(folder.path().join("secrets/wecom"), "s").expect("a file");
    std::fs::write(folder.path().join("desk.pem"), "").expect("a file");
    std::fs::write(folder.path().join("deskgate.toml"), FILE).expect("a file");
    folder
}

fn overrides(texts: &[&str]) -> Vec<Override> {
    texts.iter().map(|text| text.parse().expect("an override")).collect()
}

#[test]
fn relative_paths_start_at_the_folder_of_the_configuration_file() {
    let folder = folder();
    let root = folder.path();
    let config = load(Some(&root.join("deskgate.toml")), &[]).expect("valid");
    let tls = config.server.tls.as_ref().expect("TLS");
    for (path, expected) in [
        (&config.server.data_dir, root.join("state")),
        (&config.server.secret_file, root.join("secrets/fleet")),
        (&config.server.old_secret_files[0], root.join("secrets/before")),
        (&config.server.old_secret_files[1], "/absolute/before".into()),
        (&tls.cert_file, root.join("tls.crt")),
        (&tls.key_file, root.join("../tls.key")),
        (&config.server.listeners[0].client_ca_file, root.join("clients.pem")),
        (&config.server.certificates[0].ocsp_file, root.join("two.ocsp")),
        (&config.upstreams["desk"].tls.as_ref().expect("TLS").ca_file, root.join("desk.pem")),
        (&config.platform.secret_file, root.join("secrets/wecom")),
        (&config.otp.old_key_files[0], root.join("otp.key")),
        // A default is no different from the same value in the file.
        (&config.rules.dir, root.join("lua-free-rules")),
        (&config.otp.key_file, "".into()),
    ] {
        assert_eq!(*path, expected);
    }
}

#[test]
fn paths_from_the_command_line_and_without_a_file_start_at_the_working_directory() {
    let folder = folder();
    let sets = overrides(&["server.data_dir=here", "rules.dir=rules", "server.tls.cert_file=here.crt"]);
    let config = load(Some(&folder.path().join("deskgate.toml")), &sets).expect("valid");
    assert_eq!((config.server.data_dir.as_path(), config.rules.dir.as_path()), (Path::new("here"), Path::new("rules")));
    let tls = config.server.tls.expect("TLS");
    assert_eq!((tls.cert_file.as_path(), tls.key_file), (Path::new("here.crt"), folder.path().join("../tls.key")));
    let sets = overrides(&["server.tls={ cert_file = \"a\", key_file = \"b\" }"]);
    let config = load(Some(&folder.path().join("deskgate.toml")), &sets).expect("valid");
    assert_eq!(config.server.tls.expect("TLS").key_file, Path::new("b"));
    let config = load(None, &overrides(&["platform.corp_id=ww1", "platform.secret=s"])).expect("valid");
    assert_eq!(config.server.data_dir, Path::new("data"));
    assert_eq!(config.rules.dir, Path::new("lua-free-rules"));
}

/// Keys of the reference file that end like the name of a file or folder.
#[test]
fn every_key_that_names_a_file_or_folder_is_resolved() {
    let reference: toml::Table = include_str!("../../../conf/deskgate.toml").parse().expect("TOML");
    let mut config = super::Config::default();
    config.server.old_secret_files.push("x".into());
    config.otp.old_key_files.push("x".into());
    let known: Vec<String> = config.paths_mut().into_iter().map(|(key, _)| key.into_owned()).collect();
    for (section, keys) in &reference {
        for key in keys.as_table().expect("a section").keys() {
            let is_path = ["_file", "_files", "dir"].iter().any(|end| key.ends_with(end));
            let key = format!("{section}.{key}");
            assert!(!is_path || known.contains(&key), "{key} is not in paths_mut()");
        }
    }
}

#[test]
fn the_fleet_digest_does_not_depend_on_where_the_files_are() {
    let (one, other) = (folder(), folder());
    let digest = |folder: &Path| load(Some(&folder.join("deskgate.toml")), &[]).expect("valid").fleet_digest();
    assert_eq!(digest(one.path()).as_str(), digest(other.path()).as_str());
}

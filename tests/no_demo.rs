//! A build without the feature `demo` starts, and has no simulator, no demo and no axum.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const CONFIG: &str = r#"
[server]
listen = ["127.0.0.1:0"]
admin_listen = "127.0.0.1:0"
public_url = "https://desk.example.com"
data_dir = "DIRECTORY/data"

[platform]
kind = "wecom"
corp_id = "ww0123456789abcdef"
agent_id = "1000002"
secret_file = "DIRECTORY/wecom.secret"

[clients]
h5 = "https://desk.example.com/h5/"
itagent = "https://desk.example.com/itagent/"
itadmin = "https://desk.example.com/itadmin/"

[rules]
dir = "REPOSITORY/lua-free-rules"

[upstreams.helpdesk]
addresses = ["127.0.0.1:9"]
"#;

/// Runs cargo without the variables that describe this test. Build scripts depend on some of them, ring's for
/// example, so that each such run and the next one from a shell would compile ring and its dependents again.
fn cargo() -> Command {
    const OF_THE_TEST: [&str; 7] =
        ["CARGO_BIN_", "CARGO_CRATE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_", "NEXTEST", "OUT_DIR"];
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `make test` compiles with clippy, which would lint the same files again.
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("RUSTC_WORKSPACE_WRAPPER");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THE_TEST.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command
}

/// Builds the program without `demo`.
///
/// The program is an example in the target directory of the tests, because that is cheap and safe. Cheap: examples
/// resolve with the dev-dependencies, axum among them, so every dependency has the features that the tests have built
/// and only the `deskgate` crate is compiled again. Safe: unlike a second build of the binary it does not replace
/// `target/debug/deskgate`, which other tests run meanwhile. A test run holds no lock on the directory.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let output = cargo()
        .args(["build", "--locked", "--no-default-features", "--example", "deskgate-without-demo"])
        .args(["--config", "profile.dev.debug=false", "--config", "profile.dev.incremental=false", "--target-dir"])
        .arg(target)
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("debug/examples/deskgate-without-demo")
}

fn run(program: &Path, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        Command::new(program).args(args).env_remove("DESKGATE_CONFIG").output().expect("the program");
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// A gateway that is killed when the test ends.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_build_without_demo_serves_and_has_no_simulator_and_no_demo_command() {
    let program = build();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let config = CONFIG
        .replace("DIRECTORY", &directory.path().display().to_string())
        .replace("REPOSITORY", env!("CARGO_MANIFEST_DIR"));
    std::fs::write(path("wecom.secret"), "secret").expect("a file");
    std::fs::write(path("deskgate.toml"), config).expect("a file");
    let file = path("deskgate.toml");

    let (code, text) = run(&program, &["demo"]);
    assert!(code == Some(2) && text.contains("unrecognized subcommand 'demo'"), "{text}");
    let (code, text) = run(&program, &["check", "--config", &file]);
    assert_eq!(code, Some(0), "{text}");
    let simulated = ["--set", "platform.kind=simulated", "--set", "server.development=true"];
    for command in ["check", "serve"] {
        let (code, text) = run(&program, &[&[command, "--config", &file], &simulated[..]].concat());
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("platform.kind: this build has no simulated platform"), "{text}");
    }

    let child = Command::new(&program).args(["serve", "--config", &file]).stdout(Stdio::piped()).spawn();
    let mut serving = Serving(child.expect("the program"));
    let stdout = BufReader::new(serving.0.stdout.take().expect("a pipe"));
    let ready = stdout.lines().map_while(Result::ok).find(|line| line.starts_with("ready ")).expect("a ready line");
    let listen = ready.split(' ').find_map(|word| word.strip_prefix("listen=")).expect("an address");
    let mut connection = TcpStream::connect(listen).expect("a connection");
    connection
        .write_all(b"GET /version HTTP/1.1\r\nHost: desk.example.com\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut response = String::new();
    connection.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[test]
fn a_build_without_demo_does_not_depend_on_axum() {
    let tree = |features: &[&str]| {
        let output =
            cargo().args(["tree", "--locked", "--edges", "normal", "--prefix", "none"]).args(features).output();
        let output = output.expect("cargo");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let has_axum = |tree: &str| tree.lines().any(|line| line.starts_with("axum "));
    assert!(has_axum(&tree(&[])), "with demo");
    assert!(!has_axum(&tree(&["--no-default-features"])), "without demo");
}

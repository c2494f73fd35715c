//! nginx in front of the gateway, configured as `docs/operations.md` says: no client chooses its address.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::*;

const DOCUMENT: &str = include_str!("../../docs/operations.md");

/// The value of `X-Forwarded-For` in the documented configuration.
const REPLACED: &str = "$remote_addr";

const RULES: &str = r#"
[[rule]]
name = "from the company"
path = "/inside/{*rest}"
upstream = "helpdesk"
public = true
networks = ["10.0.0.0/8"]
"#;

/// A running nginx; killed on drop. It connects to the gateway from `127.0.0.2`, clients connect to it from `127.0.0.1`.
struct Nginx {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Nginx {
    /// Starts the documented configuration, with this value of `X-Forwarded-For`.
    async fn start(desk: &Gateway, forwarded_for: &str) -> Nginx {
        loop {
            let mut nginx = Nginx::spawn(desk, forwarded_for);
            let client = Client::new(nginx.address);
            let answers = eventually("nginx answers, or has ended", || {
                let ended = nginx.process.try_wait().expect("a child");
                let client = client.clone();
                async move {
                    match (client.try_send("GET", "/api/ready", &[], b"").await, ended) {
                        (Ok(response), _) => Some(response.status == 200),
                        (Err(_), Some(_)) => Some(false),
                        (Err(_), None) => None,
                    }
                }
            })
            .await;
            if answers {
                return nginx;
            }
            // Another process may have taken the port meanwhile.
            let log = fs::read_to_string(nginx.folder.path().join("error.log")).unwrap_or_default();
            assert!(log.contains("Address already in use"), "nginx has ended: {log}");
        }
    }

    fn spawn(desk: &Gateway, forwarded_for: &str) -> Nginx {
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().display();
        let config = documented(desk, address, forwarded_for);
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {path}/{kind};\n"))
            .concat();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {path}/nginx.pid;\nerror_log {path}/error.log;\nevents {{}}\n\
             http {{\naccess_log off;\n{temporary}{config}}}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).expect("a configuration file");
        // Debian installs it outside the PATH of ordinary users.
        let installed = fs::exists("/usr/sbin/nginx").is_ok_and(|found| found);
        let process = Command::new(if installed { "/usr/sbin/nginx" } else { "nginx" })
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx");
        Nginx { process, address, folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The nginx configuration of the documentation, with the test's addresses.
fn documented(desk: &Gateway, address: SocketAddr, forwarded_for: &str) -> String {
    let after = DOCUMENT.split("```nginx\n").nth(1).expect("an example");
    let example = after.split("```").next().expect("its end");
    for part in ["server {\n", "127.0.0.1:8080", REPLACED] {
        assert_eq!(example.matches(part).count(), 1, "{part} in {example}");
    }
    example
        .replace("server {\n", &format!("server {{\nlisten {address};\nproxy_bind 127.0.0.2;\n"))
        .replace("127.0.0.1:8080", &desk.address().to_string())
        .replace(REPLACED, forwarded_for)
}

#[tokio::test]
async fn behind_nginx_no_client_chooses_its_address() {
    let settings = "[server]\ntrusted_proxies = [\"127.0.0.2/32\"]\nclient_address = \"rightmost\"";
    let desk = Gateway::setup().more_rules(RULES).toml(settings).start().await;
    for (forwarded_for, garbage) in [(REPLACED, 1003), ("$proxy_add_x_forwarded_for", 1400)] {
        let nginx = Nginx::start(&desk, forwarded_for).await;
        let client = Client::new(nginx.address);
        for (sent, code) in [("10.1.1.1", 1003), ("10.1.1.1, 10.2.2.2", 1003), ("garbage, 10.1.1.1", garbage)] {
            let response = client.with_header("X-Forwarded-For", sent).get("/inside/x").await;
            assert_eq!(response.code(), code, "{forwarded_for}, {sent}: {}", response.describe());
        }
        client.with_header("X-Forwarded-For", "10.1.1.1").get("/public/x").await.expect_status(200);
        assert_eq!(desk.upstream.last_request().header("x-forwarded-for"), Some("127.0.0.1, 127.0.0.2"));
        client.with_host("evil.example").get("/public/x").await.expect_code(1421);
        client.websocket("/ws/public").await.echo("hello").await;
    }
}

//! Redis servers: shared ones for tests that only store things, and servers of one test that it may kill, stop or pause.

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Shared, ask, detached, free_port, shared, wait_until, write};

pub mod groups;

/// The name under which Sentinels know the primary.
pub const PRIMARY: &str = "desk";

/// User and password of [`secured`].
pub const USER: (&str, &str) = ("desk", "p@ss/word");

/// What the manual says that a user needs.
pub const PERMISSIONS: &str = "~* &* +@all -@dangerous +info +role +config|get +cluster|slots +cluster|info +wait";

/// The program of the servers and the Sentinels: `redis-server`, or what `DESKGATE_TEST_REDIS` names, such as a Valkey.
fn program() -> std::ffi::OsString {
    std::env::var_os("DESKGATE_TEST_REDIS").unwrap_or_else(|| "redis-server".into())
}

/// A key prefix that no other test has.
pub fn own_prefix() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// `store.url` of a server that all tests of the run share.
pub fn standalone() -> String {
    shared("redis", |folder| {
        let (port, process) = start_detached(folder, "standalone", &[]);
        Shared { processes: vec![process], address: format!("redis://127.0.0.1:{port}") }
    })
}

/// A server with TLS, an ACL user and a Unix socket: `(port, certificate authority, socket)`.
pub fn secured() -> (u16, PathBuf, PathBuf) {
    let address = shared("redis-secured", |folder| {
        let (port, socket) = (free_port(), folder.join("redis.sock"));
        let authority = certificates(folder);
        let mut settings = encrypted_listener(folder, port);
        settings.extend([
            "port 0".to_owned(),
            format!("unixsocket {}", socket.display()),
            "user default off".to_owned(),
            format!("user {} on >{} {PERMISSIONS}", USER.0, USER.1),
        ]);
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let process = detached(&mut server(folder, "secured", &settings));
        wait_until("the socket", || socket.exists());
        Shared { processes: vec![process], address: format!("{port} {} {}", authority.display(), socket.display()) }
    });
    let mut parts = address.split(' ');
    let mut next = || parts.next().expect("three parts").to_owned();
    (next().parse().expect("a port"), next().into(), next().into())
}

/// The settings of a TLS port with the [`certificates`] of a folder.
fn encrypted_listener(folder: &Path, port: u16) -> Vec<String> {
    let file = |setting: &str, name: &str| format!("{setting} {}", folder.join(name).display());
    vec![
        format!("tls-port {port}"),
        file("tls-cert-file", "server.pem"),
        file("tls-key-file", "server.key"),
        file("tls-ca-cert-file", "authority.pem"),
        "tls-auth-clients no".to_owned(),
    ]
}

/// Writes a certificate for 127.0.0.1 and the authority that signed it.
fn certificates(folder: &Path) -> PathBuf {
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    // Servers take a certificate whose issuer has its own name for one that signed itself.
    authority.distinguished_name.push(rcgen::DnType::CommonName, "authority of a test");
    let root = authority.self_signed(&authority_key).expect("an authority");
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let certificate = parameters.signed_by(&key, &issuer).expect("a certificate");
    write(folder, "server.pem", &pem("CERTIFICATE", certificate.der()));
    write(folder, "server.key", &pem("PRIVATE KEY", &key.serialize_der()));
    write(folder, "authority.pem", &pem("CERTIFICATE", root.der()))
}

fn pem(kind: &str, der: &[u8]) -> String {
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

/// `store.url` of a primary with a replica and three Sentinels that all tests of the run share.
pub fn sentinel() -> String {
    shared("redis-sentinel", |folder| {
        let (primary, first) = start_detached(folder, "primary", &[]);
        let (replica, second) = start_detached(folder, "replica", &[&format!("replicaof 127.0.0.1 {primary}")]);
        let sentinels: Vec<(u16, u32)> = (0..3).map(|number| start_sentinel(folder, number, primary)).collect();
        wait_for_replica(primary, replica);
        let processes = [first, second].into_iter().chain(sentinels.iter().map(|(_, process)| *process)).collect();
        Shared { processes, address: sentinel_url(sentinels.iter().map(|(port, _)| *port)) }
    })
}

/// `store.url` of Sentinels at these ports.
pub fn sentinel_url(ports: impl Iterator<Item = u16>) -> String {
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+sentinel://{}/{PRIMARY}", hosts.join(","))
}

fn sentinel_settings(primary: u16) -> Vec<String> {
    vec![
        format!("sentinel monitor {PRIMARY} 127.0.0.1 {primary} 2"),
        format!("sentinel down-after-milliseconds {PRIMARY} 1000"),
        format!("sentinel failover-timeout {PRIMARY} 5000"),
    ]
}

fn start_sentinel(folder: &Path, number: usize, primary: u16) -> (u16, u32) {
    let port = free_port();
    let process = detached(&mut sentinel_command(folder, number, port, primary, Vec::new()));
    wait_until("a Sentinel", || ask(port, "PING\r\n").is_some_and(|answer| answer.starts_with("+PONG")));
    (port, process)
}

fn sentinel_command(folder: &Path, number: usize, port: u16, primary: u16, more: Vec<String>) -> Command {
    let own = folder.join(format!("sentinel-{number}"));
    std::fs::create_dir_all(&own).expect("a folder");
    let mut lines = vec![format!("port {port}"), "bind 127.0.0.1".to_owned(), format!("dir {}", own.display())];
    lines.extend(sentinel_settings(primary));
    lines.extend(more);
    let mut command = Command::new(program());
    command.arg(write(&own, "sentinel.conf", &lines.join("\n"))).arg("--sentinel");
    command
}

fn wait_for_replica(primary: u16, replica: u16) {
    wait_until("the replica", || {
        ask(replica, "INFO replication\r\n").is_some_and(|info| info.contains("master_link_status:up"))
            && ask(primary, "INFO replication\r\n").is_some_and(|info| info.contains("state=online"))
    });
}

/// Waits until a replica has everything that its primary has.
pub fn wait_for_offset(primary: &RedisServer, replica: &RedisServer) {
    let offset = |server: &RedisServer, field: &str| {
        let info = server.ask("INFO replication\r\n")?;
        info.lines().find_map(|line| line.strip_prefix(field)?.trim().parse::<u64>().ok())
    };
    wait_until("the replica has everything", || {
        let written = offset(primary, "master_repl_offset:");
        written.is_some() && offset(replica, "slave_repl_offset:") >= written
    });
}

/// `store.url` of a cluster of three primaries and three replicas that all tests of the run share.
pub fn cluster() -> String {
    shared("redis-cluster", |folder| {
        let members: Vec<(u16, u32)> = (0..6).map(|number| start_member(folder, number)).collect();
        let ports: Vec<u16> = members.iter().map(|(port, _)| *port).collect();
        form_cluster(&ports, &[]);
        wait_for_cluster(&ports);
        Shared { processes: members.iter().map(|(_, process)| *process).collect(), address: cluster_url(&ports) }
    })
}

/// `store.url` of a cluster of which these members are known.
pub fn cluster_url(ports: &[u16]) -> String {
    let hosts: Vec<String> = ports.iter().take(3).map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

fn member_settings() -> Vec<String> {
    vec![
        "cluster-enabled yes".to_owned(),
        "cluster-node-timeout 2000".to_owned(),
        format!("cluster-port {}", free_port()),
    ]
}

fn start_member(folder: &Path, number: usize) -> (u16, u32) {
    let settings = member_settings();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    start_detached(folder, &format!("member-{number}"), &settings)
}

/// Makes a cluster of six servers.
fn form_cluster(ports: &[u16], access: &[String]) {
    let mut create = Command::new("redis-cli");
    create.args(access).args(["--cluster", "create"]).args(ports.iter().map(|port| format!("127.0.0.1:{port}")));
    create.args(["--cluster-replicas", "1", "--cluster-yes"]).stdin(Stdio::null());
    let output = create.output().expect("redis-cli");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{} {}", said(&output.stdout), said(&output.stderr));
}

/// Waits until every member sees the cluster.
fn wait_for_cluster(ports: &[u16]) {
    for port in ports {
        wait_until("the cluster", || {
            ask(*port, "CLUSTER INFO\r\n").is_some_and(|info| info.contains("cluster_state:ok"))
        });
    }
    // A primary calls its replica online while that still loads what it was sent, and confirms nothing.
    let replicating = ["state=online", "master_link_status:up"];
    wait_until("the replicas", || {
        let states: Vec<String> = ports.iter().filter_map(|port| ask(*port, "INFO replication\r\n")).collect();
        replicating.iter().all(|state| states.iter().filter(|info| info.contains(state)).count() == 3)
    });
}

/// A server whose process lives until the run ends. Returns its port and process.
fn start_detached(folder: &Path, name: &str, settings: &[&str]) -> (u16, u32) {
    let port = free_port();
    let listen = format!("port {port}");
    let mut all = vec![listen.as_str()];
    all.extend(settings);
    let process = detached(&mut server(folder, name, &all));
    wait_until(name, || ask(port, "PING\r\n").is_some_and(|answer| answer.starts_with('+')));
    (port, process)
}

/// A server with these lines of configuration.
fn server(folder: &Path, name: &str, settings: &[&str]) -> Command {
    let own = folder.join(name);
    std::fs::create_dir_all(&own).expect("a folder");
    let mut lines = vec!["bind 127.0.0.1", "save \"\"", "enable-debug-command yes", "repl-diskless-sync-delay 0"];
    lines.extend(settings);
    let directory = format!("dir {}", own.display());
    lines.push(&directory);
    let mut command = Command::new(program());
    command.arg(write(&own, "redis.conf", &lines.join("\n")));
    command
}

/// A server of one test.
pub struct RedisServer {
    folder: tempfile::TempDir,
    settings: Vec<String>,
    child: Child,
    /// Its TCP port, also after a restart.
    pub port: u16,
}

impl RedisServer {
    /// Starts a server with these lines of configuration.
    pub fn start(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let settings: Vec<String> =
            settings.iter().map(|line| (*line).to_owned()).chain([format!("port {port}")]).collect();
        let child = Self::spawn(folder.path(), &settings);
        let server = Self { folder, settings, child, port };
        server.wait();
        server
    }

    fn spawn(folder: &Path, settings: &[String]) -> Child {
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let mut command = server(folder, "server", &settings);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redis-server")
    }

    fn wait(&self) {
        wait_until("the server", || self.ask("PING\r\n").is_some_and(|answer| answer.starts_with(['+', '-'])));
    }

    /// `store.url`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The answer to an inline command.
    pub fn ask(&self, question: &str) -> Option<String> {
        ask(self.port, question)
    }

    /// Sends an inline command whose answer nobody waits for.
    pub fn send(&self, question: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.write_all(question.as_bytes()).expect("a command");
        // A server drops the command of a client that has gone.
        std::mem::forget(stream);
    }

    /// Runs an inline command that must succeed.
    pub fn expect_ok(&self, command: &str) {
        let answer = self.ask(&format!("{command}\r\n")).expect("an answer");
        assert!(answer.starts_with("+OK"), "{command}: {answer}");
    }

    /// All that it has written to its folder.
    pub fn files(&self) -> Vec<u8> {
        fn read(folder: &Path, bytes: &mut Vec<u8>) {
            for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
                if entry.path().is_dir() {
                    read(&entry.path(), bytes);
                } else {
                    bytes.extend(std::fs::read(entry.path()).unwrap_or_default());
                }
            }
        }
        let mut bytes = Vec::new();
        read(self.folder.path(), &mut bytes);
        bytes
    }

    /// Ends the process at once.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Starts it again after [`RedisServer::kill`]: empty, unless it was configured to keep its data.
    pub fn restart(&mut self) {
        self.child = Self::spawn(self.folder.path(), &self.settings);
        self.wait();
    }

    /// Starts it again and does not wait until it answers.
    pub fn restart_without_waiting(&mut self) {
        self.child = Self::spawn(self.folder.path(), &self.settings);
    }

    /// Sends a signal: `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) {
        send_signal(&self.child, signal);
    }
}

fn send_signal(process: &Child, signal: &str) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(process.id().to_string()).status();
    assert!(sent.expect("kill").success());
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

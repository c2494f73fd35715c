//! Groups of servers of one test: Sentinels with their primary and replica, and a cluster; with and without TLS.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{
    PRIMARY, RedisServer, ask, certificates, cluster_url, encrypted_listener, form_cluster, free_port, member_settings,
    send_signal, sentinel_command, sentinel_url, wait_for_cluster, wait_for_replica, wait_until,
};

/// The certificates of a group whose members also listen for TLS, and use it among themselves.
struct Encryption {
    folder: tempfile::TempDir,
    ca_file: PathBuf,
}

impl Encryption {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ca_file = certificates(folder.path());
        Self { folder, ca_file }
    }

    fn settings(&self, port: u16) -> Vec<String> {
        let mut settings = encrypted_listener(self.folder.path(), port);
        settings.push("tls-replication yes".to_owned());
        settings
    }
}

/// A server that also listens for TLS if its group does. The test itself asks at the plain port.
struct Member {
    server: RedisServer,
    /// Where clients and other members connect.
    port: u16,
}

impl Member {
    fn start(encryption: Option<&Encryption>, mut settings: Vec<String>) -> Self {
        let tls_port = encryption.map(|encryption| {
            let port = free_port();
            settings.extend(encryption.settings(port));
            port
        });
        let server = RedisServer::start(&settings.iter().map(String::as_str).collect::<Vec<_>>());
        Self { port: tls_port.unwrap_or(server.port), server }
    }
}

/// `store.url` of a group.
fn url_of(encryption: Option<&Encryption>, url: String) -> String {
    match encryption {
        Some(_) => url.replacen("redis", "rediss", 1),
        None => url,
    }
}

/// `store.ca_file` of a group.
fn ca_file_of(encryption: Option<&Encryption>) -> PathBuf {
    encryption.map(|encryption| encryption.ca_file.clone()).unwrap_or_default()
}

/// A primary, a replica and three Sentinels of one test.
pub struct SentinelGroup {
    /// The primary, and after a failover the other one.
    pub first: RedisServer,
    /// The replica.
    pub second: RedisServer,
    sentinels: Vec<(u16, Child)>,
    encryption: Option<Encryption>,
    _folder: tempfile::TempDir,
}

impl SentinelGroup {
    /// Starts them all.
    pub fn start() -> Self {
        Self::start_all(None)
    }

    /// Starts them all with TLS.
    pub fn start_encrypted() -> Self {
        Self::start_all(Some(Encryption::new()))
    }

    fn start_all(encryption: Option<Encryption>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Member::start(encryption.as_ref(), Vec::new());
        let second = Member::start(encryption.as_ref(), vec![format!("replicaof 127.0.0.1 {}", first.port)]);
        wait_for_replica(first.server.port, second.server.port);
        let start = |number| {
            let (port, tls_port) = (free_port(), free_port());
            let more = encryption.as_ref().map(|encryption| encryption.settings(tls_port)).unwrap_or_default();
            let mut command = sentinel_command(folder.path(), number, port, first.port, more);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let reached_at = if encryption.is_some() { tls_port } else { port };
            (port, (reached_at, child.expect("redis-sentinel")))
        };
        let (ports, sentinels): (Vec<u16>, Vec<(u16, Child)>) = (0..3).map(start).unzip();
        let group = Self { first: first.server, second: second.server, sentinels, encryption, _folder: folder };
        for port in ports {
            wait_until("the Sentinels know each other and the replica", || {
                ask(port, "SENTINEL MASTERS\r\n").is_some_and(|answer| {
                    answer.contains("num-other-sentinels\r\n$1\r\n2") && answer.contains("num-slaves\r\n$1\r\n1")
                })
            });
        }
        group
    }

    /// `store.url`.
    pub fn url(&self) -> String {
        url_of(self.encryption.as_ref(), sentinel_url(self.sentinels.iter().map(|(port, _)| *port)))
    }

    /// `store.ca_file`.
    pub fn ca_file(&self) -> PathBuf {
        ca_file_of(self.encryption.as_ref())
    }
}

impl Drop for SentinelGroup {
    fn drop(&mut self) {
        for (_, sentinel) in &mut self.sentinels {
            let _ = sentinel.kill();
            let _ = sentinel.wait();
        }
    }
}

/// A Sentinel of one test that knows no other: it names the primary that it is told.
pub struct LoneSentinel {
    /// Its TCP port.
    pub port: u16,
    child: Child,
    _folder: tempfile::TempDir,
}

impl LoneSentinel {
    /// Starts one that names this primary.
    pub fn start(primary: &RedisServer) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        let mut command = sentinel_command(folder.path(), 0, port, primary.port, Vec::new());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let sentinel = Self { port, child: child.expect("redis-sentinel"), _folder: folder };
        wait_until("a Sentinel", || ask(port, "PING\r\n").is_some_and(|answer| answer.starts_with("+PONG")));
        sentinel
    }

    /// Has it name another primary.
    pub fn name(&self, primary: &RedisServer) {
        ask(self.port, &format!("SENTINEL REMOVE {PRIMARY}\r\n")).expect("an answer");
        let monitor = format!("SENTINEL MONITOR {PRIMARY} 127.0.0.1 {} 2\r\n", primary.port);
        assert!(ask(self.port, &monitor).expect("an answer").starts_with("+OK"));
    }

    /// Sends a signal: `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) {
        send_signal(&self.child, signal);
    }

    /// Ends the process at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for LoneSentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three primaries and three replicas of one test.
pub struct RedisCluster {
    /// The first three are the primaries.
    pub members: Vec<RedisServer>,
    /// Where clients reach them.
    ports: Vec<u16>,
    encryption: Option<Encryption>,
}

impl RedisCluster {
    /// Starts them all.
    pub fn start() -> Self {
        Self::start_all(None)
    }

    /// Starts them all with TLS.
    pub fn start_encrypted() -> Self {
        Self::start_all(Some(Encryption::new()))
    }

    fn start_all(encryption: Option<Encryption>) -> Self {
        let (mut more_settings, mut access) = (Vec::new(), Vec::new());
        if let Some(encryption) = &encryption {
            more_settings.push("tls-cluster yes".to_owned());
            access = vec!["--tls".to_owned(), "--cacert".to_owned(), encryption.ca_file.display().to_string()];
        }
        let start = |_| Member::start(encryption.as_ref(), [member_settings(), more_settings.clone()].concat());
        let members: Vec<Member> = (0..6).map(start).collect();
        let ports: Vec<u16> = members.iter().map(|member| member.port).collect();
        form_cluster(&ports, &access);
        let members: Vec<RedisServer> = members.into_iter().map(|member| member.server).collect();
        wait_for_cluster(&members.iter().map(|member| member.port).collect::<Vec<_>>());
        Self { members, ports, encryption }
    }

    /// Starts two primaries without replicas. Each goes on for a minute while the other is away.
    pub fn of_two_primaries() -> Self {
        let start = |_| {
            let mut settings = member_settings();
            settings.push("cluster-node-timeout 60000".to_owned());
            RedisServer::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let members: Vec<RedisServer> = (0..2).map(start).collect();
        for (member, slots) in members.iter().zip(["0 8191", "8192 16383"]) {
            member.ask(&format!("CLUSTER ADDSLOTSRANGE {slots}\r\n")).expect("an answer");
        }
        let other = &members[1];
        let bus = other.settings.iter().find_map(|line| line.strip_prefix("cluster-port ")).expect("a port");
        members[0].ask(&format!("CLUSTER MEET 127.0.0.1 {} {bus}\r\n", other.port)).expect("an answer");
        for member in &members {
            wait_until("the cluster", || {
                let info = member.ask("CLUSTER INFO\r\n").unwrap_or_default();
                info.contains("cluster_state:ok") && info.contains("cluster_size:2")
            });
        }
        let ports = members.iter().map(|member| member.port).collect();
        Self { members, ports, encryption: None }
    }

    /// Which of two primaries has a key.
    pub fn member_of(&self, key: &str) -> usize {
        usize::from(self.slot(key)) / 8192
    }

    /// `store.url`. Names the primaries.
    pub fn url(&self) -> String {
        url_of(self.encryption.as_ref(), cluster_url(&self.ports))
    }

    /// `store.ca_file`.
    pub fn ca_file(&self) -> PathBuf {
        ca_file_of(self.encryption.as_ref())
    }

    /// Has the replica of a primary take its place.
    pub fn hand_over(&self, primary: usize) {
        let of_primary = format!("master_port:{}\r", self.ports[primary]);
        let is_replica =
            |member: &&RedisServer| member.ask("INFO replication\r\n").is_some_and(|info| info.contains(&of_primary));
        let replica = self.members.iter().find(is_replica).expect("a replica");
        let mut asked: Option<Instant> = None;
        wait_until("the replica takes over", || {
            // One that the others do not know well enough yet does not.
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(3)) {
                replica.ask("CLUSTER FAILOVER\r\n").expect("an answer");
                asked = Some(Instant::now());
            }
            replica.ask("INFO replication\r\n").is_some_and(|info| info.contains("role:master"))
        });
    }

    /// Whether a member has the slot of this key, and keys in it.
    pub fn has_slot_of(&self, member: usize, key: &str) -> bool {
        let count = self.members[member].ask(&format!("CLUSTER COUNTKEYSINSLOT {}\r\n", self.slot(key)));
        count.is_some_and(|count| count.starts_with(':') && !count.starts_with(":0"))
    }

    /// Moves the keys of this key's slot from one primary to another. The slot is between the two until [`Self::end_move`].
    pub fn begin_move(&self, from: usize, to: usize, key: &str) {
        let (slot, from, to) = (self.slot(key), &self.members[from], &self.members[to]);
        to.expect_ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from)));
        from.expect_ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to)));
        let keys = from.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 50\r\n")).expect("an answer");
        // An array of bulk strings: the lines of lengths are left out.
        let keys: Vec<&str> = keys.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        from.expect_ok(&format!("MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS {}", to.port, keys.join(" ")));
    }

    /// Gives a slot to the member that has its keys.
    pub fn end_move(&self, from: usize, to: usize, key: &str) {
        let (slot, owner) = (self.slot(key), id(&self.members[to]));
        for member in [to, from] {
            self.members[member].expect_ok(&format!("CLUSTER SETSLOT {slot} NODE {owner}"));
        }
        wait_until("all members know the owner", || {
            self.members[..3].iter().all(|member| {
                let answer = member.ask(&format!("GET {key}-x\r\n")).unwrap_or_default();
                answer.starts_with("$-1") || answer.contains(&self.members[to].port.to_string())
            })
        });
    }

    fn slot(&self, key: &str) -> u16 {
        let answer = self.members[0].ask(&format!("CLUSTER KEYSLOT {key}\r\n")).expect("an answer");
        answer.trim().trim_start_matches(':').parse().expect("a slot")
    }

    /// Moves slots from one primary to another, with redis-cli in the background.
    pub fn reshard(&self, from: usize, to: usize, slots: u32) -> Child {
        let (from, to) = (&self.members[from], &self.members[to]);
        let mut command = Command::new("redis-cli");
        command.args(["--cluster", "reshard", &format!("127.0.0.1:{}", from.port), "--cluster-yes"]);
        command.args(["--cluster-from", &id(from), "--cluster-to", &id(to), "--cluster-slots", &slots.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redis-cli")
    }
}

/// The name of a member in its cluster.
fn id(member: &RedisServer) -> String {
    let answer = member.ask("CLUSTER MYID\r\n").expect("an answer");
    answer.lines().nth(1).expect("an id").to_owned()
}

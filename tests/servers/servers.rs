//! Server processes for tests. Test binaries include this file with `#[path]`.
//!
//! nextest runs each test in a process of its own. The first one that needs a server starts it under a file lock in the
//! folder of the run, the others find it there; a guardian process ends it when the run ends.
#![allow(dead_code)]

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub mod postgres;

pub mod redis;

pub mod tcp_proxy;

/// How long a server may take to start on a busy machine.
pub const START: Duration = Duration::from_secs(30);

/// The process whose end ends the run: nextest's runner, or this process under `cargo test`.
pub fn run_process() -> u32 {
    if std::env::var_os("NEXTEST").is_some() { std::os::unix::process::parent_id() } else { std::process::id() }
}

/// What a server that all tests of a run share left for them.
pub struct Shared {
    /// The processes that end with the run.
    pub processes: Vec<u32>,
    /// How to reach it, in words of its own.
    pub address: String,
}

/// Starts a server once per run and returns its address. `start` gets an empty folder.
pub fn shared(name: &str, start: impl FnOnce(&Path) -> Shared) -> String {
    let run = run_process();
    let folder = std::env::temp_dir().join(format!("deskgate-servers-{run}"));
    std::fs::create_dir_all(&folder).expect("a folder for the servers of this run");
    let lock = File::create(folder.join(format!("{name}.lock"))).expect("a lock file");
    lock.lock().expect("the lock");
    let address = folder.join(format!("{name}.address"));
    if let Ok(found) = std::fs::read_to_string(&address) {
        return found;
    }
    let own = folder.join(name);
    std::fs::create_dir_all(&own).expect("a folder for the server");
    let started = start(&own);
    guard(run, &started.processes, &folder);
    std::fs::write(&address, &started.address).expect("its address");
    started.address
}

/// Ends processes when the run ends, and removes its folder.
pub fn guard(run: u32, processes: &[u32], folder: &Path) {
    let pids = processes.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let script = format!("tail --pid={run} -f /dev/null; kill -9 {pids}; sleep 1; rm -rf '{}'", folder.display());
    detached(Command::new("sh").arg("-c").arg(script));
}

/// Starts a process that outlives the test. Returns its id.
pub fn detached(command: &mut Command) -> u32 {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn();
    child.unwrap_or_else(|error| panic!("{command:?}: {error}")).id()
}

/// A TCP port that is free now. It is below the ports that Linux takes for outgoing connections, so that no connection can get it before
/// its server is started, or while its server is stopped.
pub fn free_port() -> u16 {
    loop {
        // Each state hashes differently.
        let port = 10_000 + (RandomState::new().hash_one(()) % 22_768) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until `is_done`. Panics after [`START`].
pub fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + START;
    while !is_done() {
        assert!(Instant::now() < deadline, "not within {START:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a server answers to `question` on a new connection.
pub fn ask(port: u16, question: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(question.as_bytes()).ok()?;
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer[..length]).into_owned())
}

/// A file in a folder.
pub fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

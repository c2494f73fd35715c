//! Runs the `deskgate` binary and captures its output.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::command::PROGRAM;
use super::eventually;

/// Time limit for the `ready` line of a new process.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for the exit of a process, its drain included.
const EXIT_TIMEOUT: Duration = Duration::from_secs(40);

/// The exit of a gateway that did not start.
#[derive(Debug)]
pub struct StartFailure {
    pub status: ExitStatus,
    pub stderr: String,
}

impl StartFailure {
    pub(super) fn is_address_in_use(&self) -> bool {
        let text = self.stderr.to_ascii_lowercase();
        text.contains("in use") || text.contains("addrinuse")
    }
}

/// What is different about a process before its program runs.
#[derive(Default)]
pub(super) struct Launcher {
    pub(super) environment: Vec<(&'static str, PathBuf)>,
    /// Commands of a shell, which then replaces itself by the program.
    pub(super) shell: Option<String>,
    pub(super) stdin: Option<OwnedFd>,
}

impl Launcher {
    fn command(&mut self) -> Command {
        let mut command = match &self.shell {
            None => Command::new(PROGRAM),
            Some(script) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("{script}\nexec \"$@\"")).arg("sh").arg(PROGRAM);
                shell
            }
        };
        command.envs(self.environment.iter().cloned());
        command.stdin(self.stdin.take().map_or_else(Stdio::null, Stdio::from));
        command
    }
}

/// The gateway process, the addresses of its `ready` line and its stderr.
pub(super) struct GatewayProcess {
    pub(super) child: Child,
    /// The addresses of all client listeners.
    pub(super) listen: Vec<SocketAddr>,
    pub(super) admin: SocketAddr,
    pub(super) platform: Option<SocketAddr>,
    pub(super) stderr: CapturedOutput,
}

impl GatewayProcess {
    /// Starts the binary and waits for its `ready` line.
    pub(super) async fn start(args: &[String], folder: &Path) -> Result<GatewayProcess, StartFailure> {
        Self::start_with(Vec::new(), args, folder).await
    }

    /// Starts the binary with more environment variables.
    pub(super) async fn start_with(
        environment: Vec<(&'static str, PathBuf)>,
        args: &[String],
        folder: &Path,
    ) -> Result<GatewayProcess, StartFailure> {
        Self::launch(&mut Launcher { environment, ..Launcher::default() }, args, folder).await
    }

    /// Starts the binary as the launcher says.
    pub(super) async fn launch(
        launcher: &mut Launcher,
        args: &[String],
        folder: &Path,
    ) -> Result<GatewayProcess, StartFailure> {
        let mut child = launcher
            .command()
            .args(args)
            .current_dir(folder)
            .env_remove("RUST_LOG")
            .env("TMPDIR", folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let stderr = CapturedOutput::read(child.stderr.take().expect("a pipe"));
        let (ready_sender, ready) = oneshot::channel();
        let stdout = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            if let Some(line) = lines.find(|line| line.starts_with("ready ")) {
                let _ = ready_sender.send(line);
            }
            // Drains stdout, so that the process never blocks on a full pipe.
            lines.for_each(drop);
        });
        let mut process = GatewayProcess {
            child,
            listen: Vec::new(),
            admin: SocketAddr::from(([0, 0, 0, 0], 0)),
            platform: None,
            stderr,
        };
        let line = match tokio::time::timeout(START_TIMEOUT, ready).await {
            Ok(Ok(line)) => line,
            Ok(Err(_)) => {
                let status = process.wait_for_end().await;
                return Err(StartFailure { status, stderr: process.stderr.complete_text().await });
            }
            Err(_) => {
                let _ = process.child.kill();
                let _ = process.child.wait();
                panic!("the gateway printed no ready line:\n{}", process.stderr.text());
            }
        };
        let value = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("no address, {text}: {line}"));
        let address = |key: &str| value(key).map(parse);
        process.listen =
            value("listen").unwrap_or_else(|| panic!("no listen= in: {line}")).split(',').map(parse).collect();
        process.admin = address("admin").unwrap_or_else(|| panic!("no admin= in: {line}"));
        process.platform = address("platform");
        Ok(process)
    }

    /// Waits for the exit status.
    pub(super) async fn wait_for_end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status;
            }
            assert!(start.elapsed() < EXIT_TIMEOUT, "the gateway does not exit:\n{}", self.stderr.text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A process's output, collected by a thread while the process runs.
#[derive(Clone)]
pub(super) struct CapturedOutput {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Arc<AtomicBool>,
}

impl CapturedOutput {
    fn read(mut from: impl std::io::Read + Send + 'static) -> CapturedOutput {
        let output = CapturedOutput { bytes: Arc::default(), ended: Arc::default() };
        let (bytes, ended) = (output.bytes.clone(), output.ended.clone());
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                bytes.lock().unwrap().extend_from_slice(&piece[..count]);
            }
            ended.store(true, Ordering::SeqCst);
        });
        output
    }

    /// The output so far.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// Waits for the end of the stream and returns all of it.
    async fn complete_text(&self) -> String {
        eventually("the end of stderr", || async { self.ended.load(Ordering::SeqCst).then_some(()) }).await;
        self.text()
    }

    /// Inserts the output of an earlier process before this one.
    pub(super) fn prepend(&self, earlier: &str) {
        self.bytes.lock().unwrap().splice(..0, earlier.bytes());
    }
}

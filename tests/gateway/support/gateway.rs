//! A running gateway: addresses, files, signals, restart.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpStream;

use super::command::{command_line, run_command};
use super::process::{GatewayProcess, StartFailure};
use super::setup::environment;
use super::{
    CertificateAndKey, CertificateAuthority, CertificateFiles, Connection, DiskFaults, MovableClock, Response,
    ServerAddress, Setup, TEST_TIMEOUT, Upstream, eventually,
};

/// A running gateway and its upstream. The process is killed on drop.
pub struct Gateway {
    pub upstream: Upstream,
    pub(super) process: GatewayProcess,
    pub(super) args: Vec<String>,
    pub(super) folder: TempDir,
    pub(super) authority: Option<CertificateAuthority>,
    pub(super) disk: Option<DiskFaults>,
    pub(super) clock: Option<MovableClock>,
}

impl Gateway {
    /// Starts a gateway with the default settings.
    pub async fn start() -> Gateway {
        Setup::new().start().await
    }

    /// Starts a gateway with these settings merged into the defaults.
    pub async fn with(settings: &str) -> Gateway {
        Setup::new().toml(settings).start().await
    }

    /// The default settings, to be changed before the start.
    pub fn setup() -> Setup {
        Setup::new()
    }

    /// Starts `deskgate demo` with these arguments and its own data directory.
    pub async fn try_demo(args: &[&str]) -> Result<Gateway, StartFailure> {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = format!("server.data_dir={}", folder.path().join("data").display());
        let args: Vec<String> = ["demo", "--set", &data].iter().chain(args).map(|word| (*word).to_owned()).collect();
        let process = GatewayProcess::start(&args, folder.path()).await?;
        Ok(Gateway { upstream, process, args, folder, authority: None, disk: None, clock: None })
    }

    /// Starts `deskgate demo` without a data directory; the demo creates one under `TMPDIR`.
    pub async fn demo_without_data_dir() -> Gateway {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let args = ["demo", "--listen", "127.0.0.1:0"].map(str::to_owned).to_vec();
        let process = GatewayProcess::start(&args, folder.path()).await;
        let process = process.unwrap_or_else(|failure| panic!("the demo did not start: {}", failure.stderr));
        Gateway { upstream, process, args, folder, authority: None, disk: None, clock: None }
    }

    /// The process's `TMPDIR`.
    pub fn temporary_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address of `server.listen`, or of the first listener.
    pub fn address(&self) -> SocketAddr {
        self.listener(0)
    }

    /// The address of one of several listeners.
    pub fn listener(&self, place: usize) -> SocketAddr {
        self.process.listen[place]
    }

    /// One of several listeners that serves HTTPS, with the trusted authority.
    pub fn tls_listener(&self, place: usize) -> ServerAddress {
        ServerAddress { address: self.listener(place), ..self.server_address() }
    }

    /// The address of `server.admin_listen`.
    pub fn admin_address(&self) -> SocketAddr {
        self.process.admin
    }

    /// The address of the simulated platform.
    pub fn platform_address(&self) -> SocketAddr {
        self.process.platform.expect("a simulated platform")
    }

    /// The public URL without a trailing slash.
    pub fn public_url(&self) -> String {
        self.anonymous().origin()
    }

    /// The URL of a configured client: `h5`, `itagent` or `itadmin`.
    pub fn client_url(&self, client: &str) -> String {
        format!("{}/{client}/", self.public_url())
    }

    /// `server.data_dir`.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The faults of its disk; see [`Setup::faulty_disk`].
    pub fn disk(&self) -> &DiskFaults {
        self.disk.as_ref().expect("a gateway with a faulty disk")
    }

    /// Its wall clock; see [`Setup::movable_clock`].
    pub fn clock(&self) -> &MovableClock {
        self.clock.as_ref().expect("a gateway with a movable clock")
    }

    pub fn config_file(&self) -> PathBuf {
        self.folder.path().join("deskgate.toml")
    }

    pub fn rules_file(&self) -> PathBuf {
        self.folder.path().join("rules").join("test.toml")
    }

    /// The files of `server.tls`.
    pub fn certificate_files(&self) -> CertificateFiles {
        CertificateFiles::of(self.folder.path())
    }

    /// Issues another certificate that test clients trust, without writing it.
    pub fn new_certificate(&self) -> CertificateAndKey {
        self.authority.as_ref().expect("a gateway that speaks TLS").issue()
    }

    /// The listening address and, with TLS, the trusted authority.
    pub fn server_address(&self) -> ServerAddress {
        ServerAddress {
            address: self.address(),
            client_tls: self.authority.as_ref().map(CertificateAuthority::client_tls),
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Connection {
        Connection::open(self.server_address()).await
    }

    /// Sends bytes on a new connection; returns the first response, or `None` if the gateway closed it.
    pub async fn send_raw(&self, bytes: &[u8]) -> Option<Response> {
        let mut connection = self.connect().await;
        connection.send(bytes).await;
        connection.response().await
    }

    /// Runs `deskgate ARGS… --config FILE` and waits for its exit.
    pub async fn command(&self, args: &[&str]) -> Output {
        self.command_with_input(args, "").await
    }

    /// Runs a command with this standard input.
    pub async fn command_with_input(&self, args: &[&str], input: &str) -> Output {
        run_command(args, input, &self.config_file(), self.folder.path()).await
    }

    /// Starts `deskgate ARGS… --config FILE` without waiting for it.
    pub fn spawn_command(&self, args: &[&str]) -> Child {
        let mut command = command_line(args, &self.config_file(), self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program")
    }

    /// Sends a signal by name: `HUP`, `TERM`, `STOP`, …
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(status.expect("the kill command").success(), "kill -{name}");
    }

    /// Stops all threads of the process until [`Gateway::resume`].
    pub async fn pause(&self) {
        self.signal("STOP");
        let threads = format!("/proc/{}/task", self.pid());
        let is_stopped = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'));
        eventually("stopped threads", || async {
            let mut threads = std::fs::read_dir(&threads).expect("threads").map(|thread| {
                let stat = std::fs::read_to_string(thread.expect("a thread").path().join("stat"));
                is_stopped(&stat.unwrap_or_default())
            });
            threads.all(|stopped| stopped).then_some(())
        })
        .await;
    }

    /// Lets the threads of the process run on.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Sends SIGTERM and waits for the exit.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.process.wait_for_end().await
    }

    /// Waits until the gateway accepts no connection: it drains.
    pub async fn until_not_accepting(&self) {
        eventually("a refused connection", || async { TcpStream::connect(self.address()).await.err() }).await;
    }

    /// Waits for the exit.
    pub async fn wait_for_end(&mut self) -> ExitStatus {
        self.process.wait_for_end().await
    }

    /// Kills the process with SIGKILL.
    pub fn sigkill(&mut self) {
        self.process.child.kill().expect("a running gateway");
        self.process.child.wait().expect("an end");
    }

    /// Lets a new process take over with `serve --upgrade`. Returns the exit status of the old one.
    pub async fn upgrade(&mut self) -> ExitStatus {
        match self.try_upgrade(&[], &[]).await {
            Ok(status) => status,
            Err(failure) => panic!("the upgrade failed with {}:\n{}", failure.status, failure.stderr),
        }
    }

    /// Lets a new process with more arguments and environment variables take over.
    pub async fn try_upgrade(
        &mut self,
        more: &[&str],
        environment: &[(&'static str, PathBuf)],
    ) -> Result<ExitStatus, StartFailure> {
        let mut args = self.args.clone();
        args.push("--upgrade".to_owned());
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let successor = GatewayProcess::start_with(environment.to_vec(), &args, self.folder.path()).await?;
        let mut old = std::mem::replace(&mut self.process, successor);
        let status = old.wait_for_end().await;
        self.process.stderr.prepend(&old.stderr.text());
        Ok(status)
    }

    /// Restarts the gateway on the same state and address; tokens name that address as their issuer.
    pub async fn restart(&mut self) {
        if self.process.child.try_wait().expect("a child").is_none() {
            self.terminate().await;
        }
        let mut args = self.args.clone();
        args.extend(["--set".to_owned(), format!("server.listen=[\"{}\"]", self.address())]);
        let before = self.process.stderr.text();
        let start = Instant::now();
        self.process = loop {
            let environment = environment(self.disk.as_ref(), self.clock.as_ref());
            match GatewayProcess::start_with(environment, &args, self.folder.path()).await {
                Ok(process) => break process,
                // An outgoing connection of another process may hold the port for a moment.
                Err(failure) if failure.is_address_in_use() && start.elapsed() < TEST_TIMEOUT => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(failure) => panic!("the restart failed with {}:\n{}", failure.status, failure.stderr),
            }
        };
        self.process.stderr.prepend(&before);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the gateway's stderr ---\n{}--- end ---", self.logs());
        }
    }
}

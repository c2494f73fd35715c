//! Starts the real program: free ports, a data directory of its own, an upstream behind it.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{
    Answer, Authority, CertificateFiles, Client, Connection, PATIENCE, Pair, Phone, Place, Upstream, eventually,
    fragment_of, within,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_deskgate");

/// One rule for each kind of access, and the two sockets.
const RULES: &str = r#"
[[rule]]
name = "anyone"
path = "/public/{*rest}"
upstream = "helpdesk"
public = true

[[rule]]
name = "everyone signed in"
path = "/api/desk/{*rest}"
upstream = "helpdesk"
signed_in = true

[[rule]]
name = "agents"
path = "/api/agent-desk/{*rest}"
upstream = "helpdesk"
roles = ["agent"]

[[rule]]
name = "administrators"
path = "/api/admin-desk/{*rest}"
upstream = "helpdesk"
roles = ["admin"]

[[rule]]
name = "readers"
path = "/api/read-only/{*rest}"
methods = ["GET"]
upstream = "helpdesk"
signed_in = true

[[rule]]
name = "token passed on"
path = "/api/token-too/{*rest}"
upstream = "helpdesk"
signed_in = true
forward_token = true

[[rule]]
name = "employee socket"
path = "/ws/employee"
methods = ["GET"]
upstream = "helpdesk"
signed_in = true

[[rule]]
name = "agent socket"
path = "/ws/agent"
methods = ["GET"]
upstream = "helpdesk"
roles = ["agent"]

[[rule]]
name = "socket for anyone"
path = "/ws/public"
methods = ["GET"]
upstream = "helpdesk"
public = true
"#;

/// How the program is to be started.
pub struct Setup {
    settings: toml::Table,
    sets: Vec<String>,
    rules: String,
    shared: Option<PathBuf>,
    authority: Option<Authority>,
}

/// Why it did not start.
#[derive(Debug)]
pub struct Refused {
    /// How the program ended.
    pub status: ExitStatus,
    /// What it said on stderr.
    pub stderr: String,
}

impl Setup {
    fn new() -> Setup {
        let settings = r#"
            [server]
            listen = ["127.0.0.1:0"]
            admin_listen = "127.0.0.1:0"
            public_url = "http://127.0.0.1:0"
            development = true
            [platform]
            kind = "simulated"
            simulated_listen = "127.0.0.1:0"
            [clients]
            h5 = "http://127.0.0.1:0/h5/"
            itagent = "http://127.0.0.1:0/itagent/"
            itadmin = "http://127.0.0.1:0/itadmin/"
            [log]
            format = "json"
        "#;
        let settings = settings.parse().expect("the settings of every test");
        Setup { settings, sets: Vec::new(), rules: RULES.to_owned(), shared: None, authority: None }
    }

    /// Adds or changes settings; sections are merged.
    pub fn toml(mut self, text: &str) -> Setup {
        let more: toml::Table = text.parse().unwrap_or_else(|error| panic!("bad TOML in a test: {error}\n{text}"));
        merge(&mut self.settings, more);
        self
    }

    /// Adds a `--set section.key=value` to the command line.
    pub fn set(mut self, key: &str, value: &str) -> Setup {
        self.sets.push(format!("{key}={value}"));
        self
    }

    /// Uses these rules instead.
    pub fn rules(mut self, text: &str) -> Setup {
        self.rules = text.to_owned();
        self
    }

    /// Uses these rules beside the usual ones.
    pub fn more_rules(mut self, text: &str) -> Setup {
        self.rules.push_str(text);
        self
    }

    /// Uses the data directory of another gateway.
    pub fn sharing(mut self, other: &Gateway) -> Setup {
        self.shared = Some(other.data_dir());
        self
    }

    /// Speaks TLS to clients, with a certificate that they trust.
    pub fn tls(self) -> Setup {
        let setup = self.toml(
            r#"
            [server]
            public_url = "https://127.0.0.1:0"
            [clients]
            h5 = "https://127.0.0.1:0/h5/"
            itagent = "https://127.0.0.1:0/itagent/"
            itadmin = "https://127.0.0.1:0/itadmin/"
        "#,
        );
        Setup { authority: Some(Authority::new()), ..setup }
    }

    /// Leaves development mode: the real platform's settings, with nobody at the other end.
    pub fn production(self) -> Setup {
        self.toml(
            r#"
            [server]
            development = false
            [platform]
            kind = "wecom"
            corp_id = "wwdemo"
            secret = "a-secret-that-opens-nothing"
        "#,
        )
    }

    /// Starts it; fails the test when it does not start.
    pub async fn start(self) -> Gateway {
        match self.try_start().await {
            Ok(gateway) => gateway,
            Err(refused) => panic!("the gateway ended with {}:\n{}", refused.status, refused.stderr),
        }
    }

    /// Starts it, or says why it ended instead.
    pub async fn try_start(mut self) -> Result<Gateway, Refused> {
        let upstream = Upstream::start().await;
        let authority = self.authority.take();
        let (folder, args) = self.write(&upstream, authority.as_ref());
        let running = Running::start(&args, folder.path()).await?;
        Ok(Gateway { upstream, running, args, folder, authority })
    }

    /// Only writes the files, for commands that need no running gateway.
    pub async fn written(mut self) -> Written {
        let upstream = Upstream::start().await;
        let authority = self.authority.take();
        let (folder, _) = self.write(&upstream, authority.as_ref());
        Written { folder }
    }

    fn write(mut self, upstream: &Upstream, authority: Option<&Authority>) -> (TempDir, Vec<String>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = self.shared.take().unwrap_or_else(|| folder.path().join("data"));
        let rules = folder.path().join("rules");
        std::fs::create_dir_all(&rules).expect("a folder for rules");
        std::fs::write(rules.join("test.toml"), &self.rules).expect("a rules file");
        let mut places = toml::Table::new();
        let mut put = |section: &str, key: &str, value: toml::Value| {
            let mut table = toml::Table::new();
            table.insert(key.to_owned(), value);
            let mut root = toml::Table::new();
            root.insert(section.to_owned(), toml::Value::Table(table));
            merge(&mut places, root);
        };
        put("server", "data_dir", data.display().to_string().into());
        put("rules", "dir", rules.display().to_string().into());
        if let Some(authority) = authority {
            let files = CertificateFiles::of(folder.path());
            files.write(&authority.issue());
            let mut tls = toml::Table::new();
            tls.insert("cert_file".to_owned(), files.certificate.display().to_string().into());
            tls.insert("key_file".to_owned(), files.key.display().to_string().into());
            put("server", "tls", toml::Value::Table(tls));
        }
        let mut helpdesk = toml::Table::new();
        helpdesk.insert("addresses".to_owned(), vec![upstream.address().to_string()].into());
        put("upstreams", "helpdesk", toml::Value::Table(helpdesk));
        // The test's own settings come last: they may name other places.
        merge(&mut places, self.settings);
        let config = folder.path().join("deskgate.toml");
        std::fs::write(&config, places.to_string()).expect("a configuration file");
        let mut args = vec!["serve".to_owned(), "--config".to_owned(), config.display().to_string()];
        for set in self.sets {
            args.extend(["--set".to_owned(), set]);
        }
        (folder, args)
    }
}

/// Puts one table over another, section by section.
fn merge(into: &mut toml::Table, from: toml::Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Files of a gateway that does not run.
pub struct Written {
    folder: TempDir,
}

impl Written {
    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("deskgate.toml")
    }

    /// The rules file.
    pub fn rules_file(&self) -> PathBuf {
        self.folder.path().join("rules").join("test.toml")
    }

    /// Runs `deskgate ARGS… --config FILE` to its end.
    pub async fn command(&self, args: &[&str]) -> Output {
        run_command(args, "", &self.config(), self.folder.path()).await
    }
}

/// A running gateway with its upstream; killed when dropped.
pub struct Gateway {
    /// The service behind it.
    pub upstream: Upstream,
    running: Running,
    args: Vec<String>,
    folder: TempDir,
    authority: Option<Authority>,
}

impl Gateway {
    /// The usual one.
    pub async fn start() -> Gateway {
        Setup::new().start().await
    }

    /// The usual one with some settings of its own.
    pub async fn with(settings: &str) -> Gateway {
        Setup::new().toml(settings).start().await
    }

    /// To be set up further.
    pub fn setup() -> Setup {
        Setup::new()
    }

    /// `deskgate demo` with these arguments and a data directory of its own, or why it ended instead.
    pub async fn try_demo(args: &[&str]) -> Result<Gateway, Refused> {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = format!("server.data_dir={}", folder.path().join("data").display());
        let args: Vec<String> = ["demo", "--set", &data].iter().chain(args).map(|word| (*word).to_owned()).collect();
        let running = Running::start(&args, folder.path()).await?;
        Ok(Gateway { upstream, running, args, folder, authority: None })
    }

    /// `deskgate demo` without a data directory: it makes one in its temporary folder.
    pub async fn demo_in_its_own_folder() -> Gateway {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let args = ["demo", "--listen", "127.0.0.1:0"].map(str::to_owned).to_vec();
        let running = Running::start(&args, folder.path()).await;
        let running = running.unwrap_or_else(|refused| panic!("no demo: {}", refused.stderr));
        Gateway { upstream, running, args, folder, authority: None }
    }

    /// What the program takes for the system's temporary folder.
    pub fn temporary_folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.running.listen
    }

    /// Where monitoring connects.
    pub fn admin_address(&self) -> SocketAddr {
        self.running.admin
    }

    /// Where the simulated platform listens.
    pub fn platform_address(&self) -> SocketAddr {
        self.running.platform.expect("a simulated platform")
    }

    /// The public URL, without a slash at the end.
    pub fn public_url(&self) -> String {
        self.anyone().origin()
    }

    /// One of the clients' addresses: `h5`, `itagent` or `itadmin`.
    pub fn client_url(&self, client: &str) -> String {
        format!("{}/{client}/", self.public_url())
    }

    /// Where it keeps its state.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.folder.path().join("deskgate.toml")
    }

    /// The rules file.
    pub fn rules_file(&self) -> PathBuf {
        self.folder.path().join("rules").join("test.toml")
    }

    /// The files of its certificate.
    pub fn certificate_files(&self) -> CertificateFiles {
        CertificateFiles::of(self.folder.path())
    }

    /// A new certificate that clients trust; it is in no file yet.
    pub fn new_certificate(&self) -> Pair {
        self.authority.as_ref().expect("a gateway that speaks TLS").issue()
    }

    /// Where clients connect, and whom they believe there.
    pub fn place(&self) -> Place {
        Place { address: self.address(), trust: self.authority.as_ref().map(Authority::trust) }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.running.child.id()
    }

    /// Somebody who is not signed in.
    pub fn anyone(&self) -> Client {
        Client::new(self.place())
    }

    /// An employee who is signed in, by the development route.
    pub async fn sign_in(&self, employee_id: &str) -> Client {
        let anyone = self.anyone();
        let answer = anyone.post_json("/api/dev/login", &serde_json::json!({ "employee_id": employee_id })).await;
        let data = answer.expect_code(0).data();
        anyone.bearing(data["token"].as_str().expect("a token"))
    }

    /// Somebody with this token, good or bad.
    pub fn bearing(&self, token: &str) -> Client {
        self.anyone().bearing(token)
    }

    /// A member's phone at the simulated platform.
    pub fn phone(&self, userid: &str) -> Phone {
        Phone::new(self.anyone(), userid)
    }

    /// An employee who scanned a QR code and confirmed on the phone.
    pub async fn sign_in_by_qrcode(&self, userid: &str) -> Client {
        let browser = self.anyone();
        let ticket = browser.get("/api/auth/qrcode").await.expect_code(0).data();
        let phone = self.phone(userid);
        phone.scan_and_confirm(ticket["qrcode_url"].as_str().expect("a URL")).await;
        let poll = format!("/api/auth/scan/status?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
        let state = browser.get(&poll).await.expect_code(0).data();
        assert_eq!(state["status"], "confirmed", "{state}");
        browser.bearing(state["token"].as_str().expect("a token"))
    }

    /// An employee who came back from the platform to this client: `h5`, `itagent` or `itadmin`.
    pub async fn sign_in_by_oauth2(&self, userid: &str, client: &str) -> Client {
        let phone = self.phone(userid);
        let answer = phone.oauth2(&self.client_url(client)).await;
        let location = answer.location();
        let token = fragment_of(&location, "token").unwrap_or_else(|| panic!("no token in {location}"));
        phone.client().bearing(&token)
    }

    /// A connection of one's own.
    pub async fn connect(&self) -> Connection {
        Connection::open(self.place()).await
    }

    /// Sends these bytes on a new connection: the first answer, or `None` when it was closed instead.
    pub async fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut connection = self.connect().await;
        connection.send(bytes).await;
        connection.answer().await
    }

    /// The metrics page.
    pub async fn metrics(&self) -> String {
        Client::new(self.admin_address()).get("/metrics").await.expect_status(200).text()
    }

    /// The sum of a metric's samples whose labels contain all of these (`name="value"`); 0 when there are none.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.metrics().await;
        let samples = page.lines().filter(|line| !line.starts_with('#')).filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            (rest.starts_with('{') || rest.starts_with(' ')) && labels.iter().all(|label| rest.contains(label))
        });
        samples.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>().expect("a number")).sum()
    }

    /// Everything on stderr so far.
    pub fn logs(&self) -> String {
        self.running.stderr.text()
    }

    /// Waits for a log line that contains all of these.
    pub async fn logged(&self, parts: &[&str]) -> String {
        eventually(&format!("a log line with {parts:?}"), || async {
            self.logs().lines().find(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned)
        })
        .await
    }

    /// Runs `deskgate ARGS… --config FILE` to its end.
    pub async fn command(&self, args: &[&str]) -> Output {
        self.command_hearing(args, "").await
    }

    /// The same, with something on its standard input.
    pub async fn command_hearing(&self, args: &[&str], input: &str) -> Output {
        run_command(args, input, &self.config_file(), self.folder.path()).await
    }

    /// Starts `deskgate ARGS… --config FILE` and leaves it to the caller.
    pub fn command_begun(&self, args: &[&str]) -> Child {
        let mut command = command_line(args, &self.config_file(), self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program")
    }

    /// Sends a signal by name: `HUP`, `TERM`, `STOP`, …
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(status.expect("the kill command").success(), "kill -{name}");
    }

    /// Asks it to end, and waits until it has.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.running.ended().await
    }

    /// How it ended, once it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        self.running.ended().await
    }

    /// Kills it without a word, as a power cut would.
    pub fn kill_9(&mut self) {
        self.running.child.kill().expect("a running gateway");
        self.running.child.wait().expect("an end");
    }

    /// Starts it again on the same state and at the same address: tokens name that address. Ends it first if it runs.
    pub async fn restart(&mut self) {
        if self.running.child.try_wait().expect("a child").is_none() {
            self.terminate().await;
        }
        let mut args = self.args.clone();
        args.extend(["--set".to_owned(), format!("server.listen=[\"{}\"]", self.address())]);
        let before = self.running.stderr.text();
        let start = Instant::now();
        self.running = loop {
            match Running::start(&args, self.folder.path()).await {
                Ok(running) => break running,
                // Somebody else's outgoing connection may sit on the port for a moment.
                Err(refused) if refused.is_address_in_use() && start.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(refused) => panic!("no restart, {}:\n{}", refused.status, refused.stderr),
            }
        };
        self.running.stderr.put_before(&before);
    }
}

impl Refused {
    fn is_address_in_use(&self) -> bool {
        let text = self.stderr.to_ascii_lowercase();
        text.contains("in use") || text.contains("addrinuse")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.running.child.kill();
        let _ = self.running.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the gateway's stderr ---\n{}--- end ---", self.logs());
        }
    }
}

/// The process and what it has said.
struct Running {
    child: Child,
    listen: SocketAddr,
    admin: SocketAddr,
    platform: Option<SocketAddr>,
    stderr: Said,
}

impl Running {
    async fn start(args: &[String], folder: &Path) -> Result<Running, Refused> {
        let mut child = Command::new(PROGRAM)
            .args(args)
            .current_dir(folder)
            .env_remove("RUST_LOG")
            .env("TMPDIR", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let stderr = Said::read(child.stderr.take().expect("a pipe"));
        let (tell, ready) = oneshot::channel();
        let stdout = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            if let Some(line) = lines.find(|line| line.starts_with("ready ")) {
                let _ = tell.send(line);
            }
            // Reads on, so that the program never waits for a full pipe.
            lines.for_each(drop);
        });
        let mut running = Running {
            child,
            listen: SocketAddr::from(([0, 0, 0, 0], 0)),
            admin: SocketAddr::from(([0, 0, 0, 0], 0)),
            platform: None,
            stderr,
        };
        let line = match tokio::time::timeout(PATIENCE * 3, ready).await {
            Ok(Ok(line)) => line,
            Ok(Err(_)) => {
                let status = running.ended().await;
                return Err(Refused { status, stderr: running.stderr.whole().await });
            }
            Err(_) => {
                let _ = running.child.kill();
                let _ = running.child.wait();
                panic!("the gateway is not ready:\n{}", running.stderr.text());
            }
        };
        let place = |key: &str| {
            let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
            Some(value.parse().unwrap_or_else(|_| panic!("no address after {key}: {line}")))
        };
        running.listen = place("listen").unwrap_or_else(|| panic!("no listen= in: {line}"));
        running.admin = place("admin").unwrap_or_else(|| panic!("no admin= in: {line}"));
        running.platform = place("platform");
        Ok(running)
    }

    async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE * 2, "the gateway does not end:\n{}", self.stderr.text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A stream of the program's, collected while it runs.
#[derive(Clone)]
struct Said {
    bytes: Arc<Mutex<Vec<u8>>>,
    over: Arc<std::sync::atomic::AtomicBool>,
}

impl Said {
    fn read(mut from: impl std::io::Read + Send + 'static) -> Said {
        let said = Said { bytes: Arc::default(), over: Arc::default() };
        let (bytes, over) = (said.bytes.clone(), said.over.clone());
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                bytes.lock().unwrap().extend_from_slice(&piece[..count]);
            }
            over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        said
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// All of it, once the stream has ended.
    async fn whole(&self) -> String {
        eventually("the end of stderr", || async { self.over.load(std::sync::atomic::Ordering::SeqCst).then_some(()) })
            .await;
        self.text()
    }

    fn put_before(&self, earlier: &str) {
        self.bytes.lock().unwrap().splice(..0, earlier.bytes());
    }
}

fn command_line(args: &[&str], config: &Path, folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).arg("--config").arg(config).current_dir(folder).env_remove("RUST_LOG");
    command
}

/// What a command said, and whether it did what it was told.
pub trait Ran {
    /// What it printed; a failure fails the test.
    #[track_caller]
    fn success(&self) -> String;

    /// All that it said.
    fn said(&self) -> String;
}

impl Ran for Output {
    fn success(&self) -> String {
        assert!(self.status.success(), "{:?}: {}", self.status, self.said());
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn said(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.stdout), String::from_utf8_lossy(&self.stderr))
    }
}

async fn run_command(args: &[&str], input: &str, config: &Path, folder: &Path) -> Output {
    let mut command = command_line(args, config, folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let input = input.to_owned();
    let run = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn()?;
        // One that reads nothing may be gone already.
        let _ = child.stdin.take().expect("an input").write_all(input.as_bytes());
        child.wait_with_output()
    });
    within(PATIENCE, "the end of the command", run).await.expect("a thread").expect("the program")
}

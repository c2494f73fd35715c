//! PostgreSQL servers: a shared one with a database per test, and servers of one test that it may kill or pause.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use deskgate::directory::Directory;
use deskgate::directory::sql::SqlDirectory;
use deskgate::directory::sql::postgres::PostgresSettings;
use deskgate::domain::clock::Clock;
use deskgate::domain::employee::EmployeeSource;
use deskgate::domain::postgres_url::PostgresUrl;

use super::{Shared, detached, free_port, guard, run_process, shared, wait_until};

/// The superuser of the servers.
const USER: &str = "desk";

/// The database with the development data that new ones are copied from.
const TEMPLATE: &str = "filled";

/// Settings of a server that is quick rather than durable.
const QUICK: &[&str] = &["fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=300"];

/// The URL of a new database with the development data, on a server that all tests of the run share.
pub fn database() -> String {
    let port = shared_port();
    let name = own_name();
    psql(port, &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
    url(port, &name)
}

/// The URL of a new, empty database on the shared server.
pub fn empty_database() -> String {
    let port = shared_port();
    let name = own_name();
    psql(port, &format!("CREATE DATABASE {name}"));
    url(port, &name)
}

/// Settings for a database of the tests.
pub fn settings(url: &str) -> PostgresSettings {
    let url = PostgresUrl::parse(url).expect("a URL");
    PostgresSettings {
        url,
        ca_file: None,
        employees: EmployeeSource::Own,
        pool: 4,
        timeout: std::time::Duration::from_secs(10),
    }
}

fn shared_port() -> u16 {
    let port = shared("postgres", |folder| {
        let port = free_port();
        initialize(folder);
        let process = detached(&mut server(folder, port, QUICK));
        wait_for(port);
        psql(port, &format!("CREATE DATABASE {TEMPLATE}"));
        let template = url(port, TEMPLATE);
        let fill = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(fill(&template));
        });
        fill.join().expect("the development data");
        Shared { processes: vec![process], address: port.to_string() }
    });
    port.parse().expect("a port")
}

async fn fill(template: &str) {
    let directory = SqlDirectory::connect(settings(template), Clock::system()).await.expect("directory");
    directory.fill_for_development().await.expect("employees");
    directory.close().await;
}

fn own_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("t{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn url(port: u16, database: &str) -> String {
    format!("postgres://{USER}@127.0.0.1:{port}/{database}")
}

/// Executes a statement on a server and returns what it printed.
fn psql(port: u16, statement: &str) -> String {
    psql_in(&url(port, "postgres"), statement)
}

/// Executes statements in the database of a URL and returns what they printed.
pub fn psql_in(url: &str, statements: &str) -> String {
    let output = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "-c", statements, url])
        .output()
        .expect("psql");
    assert!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A server of one test. It ends with the value.
pub struct PostgresServer {
    /// Its port.
    pub port: u16,
    folder: tempfile::TempDir,
    settings: Vec<String>,
    process: Option<Child>,
}

impl PostgresServer {
    /// Starts a server with the usual durability.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with these settings, each `name=value`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::prepare(settings, |_| {})
    }

    /// Starts a server with these settings; `prepare` gets the folder of its data before that.
    pub fn prepare(settings: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::Builder::new().prefix("deskgate-postgres-").tempdir().expect("a folder");
        initialize(folder.path());
        prepare(&data(folder.path()));
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { port: free_port(), folder, settings, process: None };
        server.start_again();
        guard(run_process(), &[server.pid()], server.folder.path());
        server
    }

    /// Starts it again after [`PostgresServer::kill`], at the same port with the same data.
    pub fn start_again(&mut self) {
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        let mut command = server(self.folder.path(), self.port, &settings);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.process = Some(command.spawn().expect("postgres"));
        wait_for(self.port);
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running server").id()
    }

    /// Kills the server with all of its processes.
    pub fn kill(&mut self) {
        self.signal("KILL");
        self.process.take().map(|mut process| process.wait());
    }

    /// Stops all of its processes: connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on after [`PostgresServer::pause`].
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// The server's processes are a group and, of each connection, one more.
    fn signal(&self, signal: &str) {
        let server = self.pid();
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", &server.to_string()]).output().expect("ps");
        let children = String::from_utf8_lossy(&children.stdout).into_owned();
        let mut kill = Command::new("kill");
        kill.arg(format!("-{signal}")).arg(server.to_string()).args(children.split_whitespace());
        let _ = kill.stderr(Stdio::null()).status();
    }

    /// Creates a database and returns its URL.
    pub fn database(&self, name: &str) -> String {
        psql(self.port, &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        url(self.port, database)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.resume();
            self.kill();
        }
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Makes the data folder of a new server.
fn initialize(folder: &Path) {
    let allow = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, allow).expect("permissions");
    let own = folder.join("run");
    std::fs::create_dir_all(&own).expect("a folder");
    let data = data(folder);
    std::fs::create_dir_all(&data).expect("a folder");
    if is_root() {
        let folders = [own.as_os_str(), data.as_os_str()];
        let done = Command::new("chown").arg(user()).args(folders).status().expect("chown");
        assert!(done.success(), "chown");
    }
    let mut initdb = unprivileged("initdb");
    initdb.args(["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--username", USER, "-D"]).arg(&data);
    let output = initdb.output().expect("initdb");
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
}

/// Writes a file that only the server's user can read.
pub fn write_private(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("permissions");
    if is_root() {
        let done = Command::new("chown").arg(user()).arg(&path).status().expect("chown");
        assert!(done.success(), "chown");
    }
}

fn server(folder: &Path, port: u16, settings: &[&str]) -> Command {
    let mut command = unprivileged("postgres");
    command.arg("-D").arg(data(folder)).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k"]);
    command.arg(folder.join("run"));
    for setting in ["shared_buffers=16MB", "logging_collector=off"].iter().chain(settings) {
        command.args(["-c", setting]);
    }
    command
}

fn wait_for(port: u16) {
    wait_until("PostgreSQL", || {
        let ready = Command::new("pg_isready").args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]).status();
        ready.is_ok_and(|status| status.success())
    });
}

/// A server program. PostgreSQL refuses to run as root.
fn unprivileged(program: &str) -> Command {
    let path = program_path(program);
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user(), "--regid", user(), "--clear-groups"]).arg(path).current_dir("/");
    command
}

/// Debian keeps the programs of each version in a folder of their own.
fn program_path(program: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(program)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| program.into())
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("/proc")) == 0
}

/// The user of Debian's package.
fn user() -> &'static str {
    "postgres"
}

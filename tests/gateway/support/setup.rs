//! Configures a gateway and writes its files.

use std::path::PathBuf;
use std::process::Output;

use tempfile::TempDir;

use super::command::run_command;
use super::database::is_on_postgres;
use super::process::{GatewayProcess, Launcher, StartFailure};
use super::{CertificateAuthority, CertificateFiles, DiskFaults, Gateway, MovableClock, Upstream};

/// The rules of a gateway whose test sets none.
const RULES: &str = include_str!("rules.toml");

/// The configuration of a gateway before it starts.
pub struct Setup {
    settings: toml::Table,
    sets: Vec<String>,
    rules: String,
    shared_data_dir: Option<PathBuf>,
    authority: Option<CertificateAuthority>,
    faulty_disk: bool,
    movable_clock: bool,
    launcher: Launcher,
}

impl Setup {
    pub(super) fn new() -> Setup {
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
        let settings = settings.parse().expect("valid default settings");
        Setup {
            settings,
            sets: Vec::new(),
            rules: RULES.to_owned(),
            shared_data_dir: None,
            authority: None,
            faulty_disk: false,
            movable_clock: false,
            launcher: Launcher::default(),
        }
    }

    /// Merges settings into the configuration file.
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

    /// Replaces the rules.
    pub fn rules(mut self, text: &str) -> Setup {
        self.rules = text.to_owned();
        self
    }

    /// Adds rules to the default ones.
    pub fn more_rules(mut self, text: &str) -> Setup {
        self.rules.push_str(text);
        self
    }

    /// Uses the data directory of another gateway.
    pub fn sharing_data_dir(mut self, other: &Gateway) -> Setup {
        self.shared_data_dir = Some(other.data_dir());
        self
    }

    /// Lets the test make the disk of the database files slow or faulty.
    pub fn faulty_disk(self) -> Setup {
        Setup { faulty_disk: true, ..self }
    }

    /// Lets the test move the gateway's wall clock.
    pub fn movable_clock(self) -> Setup {
        Setup { movable_clock: true, ..self }
    }

    /// Runs these commands in the shell that starts the program, such as `ulimit -n 128`.
    pub fn shell(mut self, commands: &str) -> Setup {
        self.launcher.shell = Some(commands.to_owned());
        self
    }

    /// Sets an environment variable of the process.
    pub fn environment(mut self, name: &'static str, value: impl Into<PathBuf>) -> Setup {
        self.launcher.environment.push((name, value.into()));
        self
    }

    /// Passes a socket as systemd does, and listens on its address.
    pub fn activated(self, socket: std::net::TcpListener) -> Setup {
        let address = socket.local_addr().expect("an address");
        let mut setup = self.toml(&format!("[server]\nlisten = [\"{address}\"]\n"));
        setup.launcher.stdin = Some(socket.into());
        setup.shell("exec 3<&0 </dev/null\nexport LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=deskgate.socket")
    }

    /// Serves HTTPS with a certificate that test clients trust.
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
        Setup { authority: Some(CertificateAuthority::new()), ..setup }
    }

    /// Turns development mode off and configures WeCom with a secret that no server accepts.
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

    /// Starts the gateway; panics if the process exits instead.
    pub async fn start(self) -> Gateway {
        match self.try_start().await {
            Ok(gateway) => gateway,
            Err(failure) => panic!("the gateway exited with {}:\n{}", failure.status, failure.stderr),
        }
    }

    /// Starts the gateway, or returns its exit status and stderr.
    pub async fn try_start(mut self) -> Result<Gateway, StartFailure> {
        let upstream = Upstream::start().await;
        let (authority, faulty_disk, movable_clock) = (self.authority.take(), self.faulty_disk, self.movable_clock);
        let mut launcher = std::mem::take(&mut self.launcher);
        let (folder, args) = self.write(&upstream, authority.as_ref());
        let disk = faulty_disk.then(|| DiskFaults::build(folder.path()));
        let clock = movable_clock.then(|| MovableClock::create(folder.path()));
        launcher.environment.extend(environment(disk.as_ref(), clock.as_ref()));
        let process = GatewayProcess::launch(&mut launcher, &args, folder.path()).await?;
        Ok(Gateway { upstream, process, args, folder, authority, disk, clock })
    }

    /// Writes the files without starting a gateway.
    pub async fn write_files(mut self) -> GatewayFiles {
        let upstream = Upstream::start().await;
        let authority = self.authority.take();
        let (folder, _) = self.write(&upstream, authority.as_ref());
        GatewayFiles { folder }
    }

    fn write(mut self, upstream: &Upstream, authority: Option<&CertificateAuthority>) -> (TempDir, Vec<String>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = self.shared_data_dir.take().unwrap_or_else(|| folder.path().join("data"));
        let rules = folder.path().join("rules");
        std::fs::create_dir_all(&rules).expect("a folder for rules");
        std::fs::write(rules.join("test.toml"), &self.rules).expect("a rules file");
        let mut config = toml::Table::new();
        let mut set = |section: &str, key: &str, value: toml::Value| {
            let mut table = toml::Table::new();
            table.insert(key.to_owned(), value);
            let mut root = toml::Table::new();
            root.insert(section.to_owned(), toml::Value::Table(table));
            merge(&mut config, root);
        };
        set("server", "data_dir", data.display().to_string().into());
        set("rules", "dir", rules.display().to_string().into());
        if let Some(authority) = authority {
            let files = CertificateFiles::of(folder.path());
            files.write(&authority.issue());
            let mut tls = toml::Table::new();
            tls.insert("cert_file".to_owned(), files.certificate.display().to_string().into());
            tls.insert("key_file".to_owned(), files.key.display().to_string().into());
            set("server", "tls", toml::Value::Table(tls));
        }
        let mut helpdesk = toml::Table::new();
        helpdesk.insert("addresses".to_owned(), vec![upstream.address().to_string()].into());
        set("upstreams", "helpdesk", toml::Value::Table(helpdesk));
        let names_directory = self.settings.get("directory").is_some_and(|section| section.get("url").is_some());
        if is_on_postgres() && !names_directory {
            set("directory", "url", crate::servers::postgres::empty_database().into());
        }
        // With DESKGATE_TEST_FAST_LANE=false, every gateway whose test does not set a lane has Pingora's.
        if std::env::var("DESKGATE_TEST_FAST_LANE").is_ok_and(|value| value == "false") {
            set("server", "fast_lane", false.into());
        }
        // The test's own settings come last, so that they can override these.
        merge(&mut config, self.settings);
        let config_file = folder.path().join("deskgate.toml");
        std::fs::write(&config_file, config.to_string()).expect("a configuration file");
        let mut args = vec!["serve".to_owned(), "--config".to_owned(), config_file.display().to_string()];
        for assignment in self.sets {
            args.extend(["--set".to_owned(), assignment]);
        }
        (folder, args)
    }
}

/// The environment that preloads the library of one of them.
pub(super) fn environment(disk: Option<&DiskFaults>, clock: Option<&MovableClock>) -> Vec<(&'static str, PathBuf)> {
    assert!(disk.is_none() || clock.is_none(), "one library can be preloaded");
    disk.map(DiskFaults::environment).or(clock.map(MovableClock::environment)).unwrap_or_default()
}

/// Merges `from` into `into`; nested tables are merged, other values replaced.
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

/// The files of a gateway that was not started.
pub struct GatewayFiles {
    folder: TempDir,
}

impl GatewayFiles {
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("deskgate.toml")
    }

    pub fn rules_file(&self) -> PathBuf {
        self.folder.path().join("rules").join("test.toml")
    }

    /// Runs `deskgate ARGS… --config FILE` and waits for its exit.
    pub async fn command(&self, args: &[&str]) -> Output {
        run_command(args, "", &self.config(), self.folder.path()).await
    }
}

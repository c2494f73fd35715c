//! `deskgate demo`: gateway, simulated platform and a small help desk in one process.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failed, log, print_error, print_faults, runtime, serve};
use crate::app::{App, RuleSource};
use crate::config::{self, Config, Override, UpstreamConfig};
use crate::domain::secret::random_name;

mod helpdesk;

/// `deskgate demo`
#[derive(Args)]
pub(super) struct DemoArgs {
    /// Where to listen; another free port is taken when this one is in use.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Sets one key, over the demo's value; may be given again.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    overrides: Vec<Override>,
}

/// Settings of the demo; `LISTEN` and `DATA` are filled in. Binding without proof makes the
/// README's commands work without a browser; the demo listens on loopback only.
const SETTINGS: &str = r#"
[server]
listen = ["LISTEN"]
data_dir = "DATA"
development = true
admin_listen = "127.0.0.1:0"
public_url = "http://127.0.0.1:0"

[clients]
h5 = "http://127.0.0.1:0/h5/"
itagent = "http://127.0.0.1:0/itagent/"
itadmin = "http://127.0.0.1:0/itadmin/"

[platform]
kind = "simulated"

[bind]
proof = "none"

[log]
level = "warn"
"#;

pub(super) fn run(args: &DemoArgs) -> Result<(), Failed> {
    let data = Folder::make().map_err(|error| print_error(format!("no folder for the demo: {error}")))?;
    let settings =
        SETTINGS.replace("LISTEN", &free(args.listen).to_string()).replace("DATA", &data.0.display().to_string());
    let config = config::load_text("demo", &settings, &args.overrides).map_err(|faults| print_faults(&faults))?;
    let _log = log::start(&config.log).map_err(print_error)?;
    runtime(config.server.threads)?.block_on(demo(config))
}

/// A folder of the demo's own. Everybody can write where temporary folders lie: its name cannot be guessed, and one
/// that is there already, a killed demo's or a trap, is never taken.
struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("deskgate-demo-{}", random_name(22)));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What the demo made is of no use afterwards; a folder that cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The wanted address, or another port when it is in use.
fn free(wanted: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(wanted) {
        Ok(_) => wanted,
        Err(_) => SocketAddr::new(wanted.ip(), 0),
    }
}

async fn demo(mut config: Config) -> Result<(), Failed> {
    let signals = serve::Signals::listen()?;
    let desk =
        helpdesk::start().await.map_err(|error| print_error(format!("the demo help desk cannot start: {error}")))?;
    let upstream = UpstreamConfig { addresses: vec![desk], ..UpstreamConfig::default() };
    config.upstreams.insert("helpdesk".to_owned(), upstream);
    let file = config.server.data_dir.join("deskgate.toml");
    let app = App::start(config, RuleSource::Shipped).await.map_err(print_error)?;
    write_config(&file, desk).map_err(|error| print_error(format!("{}: {error}", file.display())))?;
    say(&app, &file);
    signals.run(app).await
}

/// All that commands need to find the gateway and to explain what it does.
fn write_config(file: &Path, desk: SocketAddr) -> std::io::Result<()> {
    let data = file.with_file_name("");
    let rules = data.join("lua-free-rules");
    std::fs::create_dir_all(&rules)?;
    for (name, text) in crate::rules::SHIPPED {
        std::fs::write(rules.join(name), text)?;
    }
    let text = format!(
        "[server]\ndata_dir = {:?}\ndevelopment = true\n\n[platform]\nkind = \"simulated\"\n\n\
         [rules]\ndir = {:?}\n\n[upstreams.helpdesk]\naddresses = [\"{desk}\"]\n",
        data.display(),
        rules.display()
    );
    std::fs::write(file, text)
}

#[allow(clippy::print_stdout)] // what the command is for
fn say(app: &App, file: &Path) {
    let url = app.public_url().as_str().trim_end_matches('/');
    let platform = app.platform.as_ref().map(|platform| platform.address().to_string()).unwrap_or_default();
    println!(
        "\
deskgate demo is running. Ctrl-C stops it and removes its data.

  Open  {url}/api/auth/signin?client=h5        employee client (itagent, itadmin: the others)
        and press \"Sign in inside WeCom\": the simulated platform lets you pick who you are.
        Or follow the link below the QR code, which stands in for a phone.

  Curl  TOKEN=$(curl -s {url}/api/dev/login -H 'Content-Type: application/json' \\
          -d '{{\"employee_id\":\"a2001\"}}' | python3 -c 'import json,sys; print(json.load(sys.stdin)[\"data\"][\"token\"])')
        curl -s {url}/api/auth/me -H \"Authorization: Bearer $TOKEN\"
        curl -s {url}/api/conversations -H \"Authorization: Bearer $TOKEN\"

  Operate    export DESKGATE_CONFIG={}
             then `deskgate employee list`, `deskgate session list`, … (after `make run` the program is target/debug/deskgate)

  People     u1001 (user)  a2001 (agent, user)  s3001 (supervisor)  c4001 (security)  m5001 (admin, agent, user)  n6001 (no role)
  Metrics    http://{}/metrics
  Platform   http://{platform}/simulator (simulated: see its state, make it fail)

ready listen={} admin={} platform={platform}",
        file.display(),
        app.admin,
        app.listen,
        app.admin
    );
}

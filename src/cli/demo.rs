//! `deskgate demo`: the gateway, the simulated platform and a demo help desk in one process.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;

use super::serve::Signals;
use super::{Failed, log, print_error, print_faults, print_warning, serve_on};
use crate::app::{App, Inherited, LogStreams, RuleSource, ServiceManager, Sources, StartKind};
use crate::config::{self, Config, Override, PathCase, UpstreamConfig};
use crate::demo::{Workspace, helpdesk};
use crate::rules::SHIPPED;

/// `deskgate demo`
#[derive(Args)]
pub(super) struct DemoArgs {
    /// Address to listen on; another free port is used if this one is taken.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Overrides one key of the demo's configuration; can be repeated.
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = super::override_parser::OverrideParser)]
    overrides: Vec<Override>,
}

pub(super) fn run(args: &DemoArgs) -> Result<(), Failed> {
    let workspace =
        Workspace::create().map_err(|error| print_error(format!("cannot create a directory for the demo: {error}")))?;
    let address = free_address(args.listen);
    let settings = workspace.settings(address);
    let config = config::load_text("demo", &settings, &args.overrides).map_err(|faults| print_faults(&faults))?;
    let (log, _guard) = log::start(&config).map_err(print_error)?;
    let taken = (address != args.listen).then_some(args.listen);
    serve_on(config.server.threads, serve_demo(config, &workspace, log, taken))?
}

/// Returns the address, with port 0 if its port is taken.
fn free_address(wanted: SocketAddr) -> SocketAddr {
    match std::net::TcpListener::bind(wanted) {
        Ok(_) => wanted,
        Err(_) => SocketAddr::new(wanted.ip(), 0),
    }
}

/// `taken` is the address that was wanted and is not free.
async fn serve_demo(
    mut config: Config,
    workspace: &Workspace,
    log: LogStreams,
    taken: Option<SocketAddr>,
) -> Result<(), Failed> {
    let signals = Signals::listen()?;
    let free_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let helpdesk = helpdesk::start(free_port)
        .await
        .map_err(|error| print_error(format!("cannot start the demo help desk: {error}")))?;
    let upstream = UpstreamConfig {
        addresses: vec![helpdesk.into()],
        path_case: PathCase::Sensitive,
        ..UpstreamConfig::default()
    };
    config.upstreams.insert("helpdesk".to_owned(), upstream);
    let sources = Sources { config: None, rules: RuleSource::Shipped, log };
    let app = App::start(config, sources, Inherited::default()).await.map_err(print_error)?;
    let file = workspace.config_file();
    let rule_files: Vec<(&str, &str)> = SHIPPED.iter().map(|(name, text)| (*name, *text)).collect();
    workspace
        .write_config(helpdesk, &rule_files)
        .map_err(|error| print_error(format!("{}: {error}", file.display())))?;
    if let Some(taken) = taken {
        // Before the welcome, whose addresses already name the port in use.
        print_warning(format!("{taken} is in use or not available; the demo listens on {} instead", app.listen_list()));
    }
    print_welcome(&app, &file);
    signals.run(app, &ServiceManager::from_environment(StartKind::Normal)).await
}

#[allow(clippy::print_stdout)] // the command's output
fn print_welcome(app: &App, file: &Path) {
    let public_url = app.public_url();
    let url = public_url.as_str().trim_end_matches('/');
    let platform = app.platform.as_ref().map(|platform| platform.address().to_string()).unwrap_or_default();
    println!(
        "\
deskgate demo is running. Press Ctrl-C to stop it and remove its data.

  Open  {url}/api/auth/signin?client=h5        employee client (the others: itagent, itadmin)
        and choose the WeCom button: the simulated platform lets you pick who signs in.
        Or follow the link below the QR code, which stands in for a phone.

  Curl  TOKEN=$(curl -s {url}/api/dev/login -H 'Content-Type: application/json' \\
          -d '{{\"employee_id\":\"a2001\"}}' | python3 -c 'import json,sys; print(json.load(sys.stdin)[\"data\"][\"token\"])')
        curl -s {url}/api/auth/me -H \"Authorization: Bearer $TOKEN\"
        curl -s {url}/api/conversations -H \"Authorization: Bearer $TOKEN\"

  Operate    export DESKGATE_CONFIG={}
             then `deskgate employee list`, `deskgate session list`, … (after `make run` the program is target/debug/deskgate)

  People     u1001 (user)  a2001 (agent, user)  s3001 (supervisor)  c4001 (security)  m5001 (admin, agent, user)  n6001 (no role)
  Metrics    http://{}/metrics
  Platform   http://{platform}/simulator (simulated: shows its state and injects faults)

ready listen={} admin={} platform={platform} pid={}",
        file.display(),
        app.admin,
        app.listen_list(),
        app.admin,
        std::process::id()
    );
}

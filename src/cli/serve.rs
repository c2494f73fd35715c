//! `deskgate serve`: runs the gateway until a signal or a dead background task ends it. Starting and stopping are left
//! to `app`.

use std::io::Write;
use std::sync::Arc;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ConfigArgs, Exit, Failed, log, print_error, print_faults, serve_on};
use crate::app::{
    self, App, HandOverStep, Inherited, LogStreams, Predecessor, ReloadReport, ReloadScope, RuleSource, ServiceManager,
    Sources, StartError, StartKind, Successor, activated_sockets,
};
use crate::config::{Config, ConfigSource};

/// `deskgate serve`
#[derive(Args)]
pub(super) struct ServeArgs {
    /// Take over from the gateway that runs on the same data directory, without refusing a connection; it then drains and exits.
    #[arg(long)]
    upgrade: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &ServeArgs) -> Result<(), Failed> {
    let source = args.config.source();
    let config = source.load().map_err(|faults| print_faults(&faults))?;
    let (log, _guard) = log::start(&config).map_err(print_error)?;
    let start = if args.upgrade { StartKind::Upgrade } else { StartKind::Normal };
    serve_on(config.server.threads, async {
        let signals = Signals::listen()?;
        let service = Arc::new(ServiceManager::from_environment(start));
        let inherited = activated_sockets().map_err(|error| print_error(format!("LISTEN_FDS: {error}")))?;
        let app = match start {
            StartKind::Normal => {
                let started = start_normally(config, &source, inherited, log).await;
                started.map_err(|error| print_start_error(&source, &error))?
            }
            StartKind::Upgrade => upgrade(config, &source, inherited, log, &service).await?,
        };
        announce_ready(&app);
        service.ready();
        // On the runtime that carries the requests: when its threads are stuck, the watchdog notices.
        tokio::spawn({
            let service = service.clone();
            async move { service.feed_watchdog().await }
        });
        signals.run(app, &service).await
    })?
}

async fn start_normally(
    config: Config,
    source: &ConfigSource,
    inherited: Inherited,
    log: LogStreams,
) -> Result<App, StartError> {
    let sources = Sources { config: Some(source.clone()), rules: RuleSource::Folder(config.rules.dir.clone()), log };
    App::start(config, sources, inherited).await
}

/// Prints why the start failed, with the place of the setting that is to blame.
fn print_start_error(source: &ConfigSource, error: &StartError) -> Failed {
    print_error(source.locate(&error.to_string()))
}

/// Takes over from the running gateway. What can be checked is checked before that one is disturbed.
async fn upgrade(
    config: Config,
    source: &ConfigSource,
    mut inherited: Inherited,
    log: LogStreams,
    service: &ServiceManager,
) -> Result<App, Failed> {
    let check = app::check_files(&config, |_| false);
    if !check.faults.is_empty() {
        return Err(print_faults(&check.faults));
    }
    let Some(predecessor) = Predecessor::find(&config, &mut inherited).await.map_err(print_error)? else {
        tracing::info!("no gateway is running on {}: nothing to take over", config.server.data_dir.display());
        let started = start_normally(config, source, inherited, log).await;
        return started.map_err(|error| print_start_error(source, &error));
    };
    let start = async {
        app::prepare_upgrade(&config, &mut inherited)?;
        predecessor.release(&config, &mut inherited).await?;
        start_normally(config, source, inherited, log).await
    };
    match start.await {
        Ok(app) => {
            // The service manager must know this process before the other one ends, or the service would count as ended.
            service.taken_over();
            predecessor.dismiss().await;
            Ok(app)
        }
        Err(error) => {
            predecessor.give_up(&error).await;
            Err(print_start_error(source, &error))
        }
    }
}

/// Prints one line with all addresses and the process id, for scripts and supervisors that wait for it.
fn announce_ready(app: &App) {
    let platform = app.platform.as_ref().map(|platform| format!(" platform={}", platform.address()));
    let (platform, pid) = (platform.unwrap_or_default(), std::process::id());
    let line = format!("ready listen={} admin={}{platform} pid={pid}", app.listen_list(), app.admin);
    tracing::info!("{line}");
    let mut out = std::io::stdout().lock();
    // A parent process that has closed our output does not read the line; that is no reason to stop.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The signals of the process. Registered before the ready line: by default a SIGHUP would end the process.
pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Failed> {
        let listen = |kind| signal(kind).map_err(|error| print_error(format!("cannot listen for signals: {error}")));
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Runs the gateway: reloads on SIGHUP, by command and when watched rules change, drains and stops on SIGTERM or SIGINT, or for a process
    /// that replaces this one. Exits with code 1, without draining, when a background task dies, so that a supervisor restarts
    /// the process.
    pub(super) async fn run(mut self, mut app: App, service: &ServiceManager) -> Result<(), Failed> {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => drop(reload(&app, ReloadScope::All, service).await),
                request = app.reload_requested() => request.answer(&reload(&app, ReloadScope::All, service).await),
                () = app.rules_changed() => drop(reload(&app, ReloadScope::WithoutConfig, service).await),
                _ = self.terminate.recv() => break,
                _ = self.interrupt.recv() => break,
                successor = app.successor() => match self.hand_over(app, successor).await? {
                    Some(resumed) => app = resumed,
                    None => return Ok(()),
                },
                failure = app.task_failure() => {
                    tracing::error!("shutting down without draining: {failure}");
                    service.stopping();
                    app.abort().await;
                    return Err(Failed(Exit::Failure));
                }
            }
        }
        tracing::info!("shutting down: draining (up to {})", app.drain_timeout());
        service.stopping();
        app.stop().await;
        tracing::info!("stopped");
        Ok(())
    }

    /// Makes way for another process. Returns the gateway if that process has failed.
    async fn hand_over(&mut self, app: App, successor: Successor) -> Result<Option<App>, Failed> {
        if successor.step == HandOverStep::Exit {
            tracing::info!("replaced by a new process: draining (up to {})", app.drain_timeout());
            app.stop_replaced().await;
            tracing::info!("stopped");
            return Ok(None);
        }
        tracing::info!("handing over to a new process: draining (up to {})", app.upgrade_drain());
        let released = app.release().await.map_err(print_error)?;
        let replaced = tokio::select! {
            replaced = released.replace_by(successor) => replaced,
            _ = self.terminate.recv() => Ok(()),
            _ = self.interrupt.recv() => Ok(()),
        };
        let Err(reason) = replaced else {
            tracing::info!("stopped");
            return Ok(None);
        };
        tracing::error!(%reason, "the new process has failed: this one goes on");
        released.resume().await.map(Some).map_err(print_error)
    }
}

/// Reloads and logs what came of it.
async fn reload(app: &App, scope: ReloadScope, service: &ServiceManager) -> Result<ReloadReport, StartError> {
    service.reloading();
    let reloaded = app.reload(scope).await;
    match &reloaded {
        Ok(ReloadReport { rules, changes, .. }) => {
            tracing::info!(rules, changed = changes.applied.join(", "), "reloaded");
            if !changes.pending.is_empty() {
                tracing::warn!("changed settings that take effect after a restart: {}", changes.pending.join(", "));
            }
        }
        Err(error) => tracing::error!("reload refused, nothing changed: {error}"),
    }
    service.ready();
    reloaded
}

//! `deskgate serve`: runs the gateway until a signal or a dead background task ends it. Starting and stopping are left
//! to `app`.

use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::PathBuf;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ConfigArgs, Exit, Failed, log, print_error, print_faults, runtime};
use crate::app::{App, RuleSource};

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failed> {
    let file = ConfigFile::of(args.config.clone());
    let config = args.load().map_err(|faults| print_faults(&faults))?;
    let _log = log::start(&config.log).map_err(print_error)?;
    let rules = RuleSource::Folder(config.rules.dir.clone());
    let runtime = runtime(config.server.threads)?;
    runtime.block_on(async {
        let signals = Signals::listen()?;
        let app = App::start(config, rules).await.map_err(print_error)?;
        announce_ready(&app);
        signals.run(app, &file).await
    })
}

/// The configuration file as it was at the start. A reload does not read it again.
#[derive(Default)]
pub(super) struct ConfigFile {
    path: Option<PathBuf>,
    /// A hash, because the file may hold a secret. `None` if it cannot be read.
    at_start: Option<u64>,
}

impl ConfigFile {
    fn of(path: Option<PathBuf>) -> Self {
        let mut file = Self { path, at_start: None };
        file.at_start = file.hash();
        file
    }

    fn hash(&self) -> Option<u64> {
        let bytes = std::fs::read(self.path.as_ref()?).ok()?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Some(hasher.finish())
    }

    /// Warns that changes of the file since the start have no effect yet.
    fn warn_if_changed(&self) {
        if let Some(path) = self.path.as_ref().filter(|_| self.hash() != self.at_start) {
            let file = path.display();
            tracing::warn!("{file} has changed since the start, and a reload does not read it: restart to apply it");
        }
    }
}

/// Prints one line with all addresses, for scripts and supervisors that wait for it.
fn announce_ready(app: &App) {
    let platform = app.platform.as_ref().map(|platform| format!(" platform={}", platform.address()));
    let line = format!("ready listen={} admin={}{}", app.listen_list(), app.admin, platform.unwrap_or_default());
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

    /// Runs the gateway: reloads on SIGHUP and when watched rules change, drains and stops on SIGTERM or SIGINT. Exits
    /// with code 1, without draining, when a background task dies, so that a supervisor restarts the process.
    pub(super) async fn run(mut self, app: App, file: &ConfigFile) -> Result<(), Failed> {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => reload(&app, file).await,
                () = app.rules_changed() => reload(&app, file).await,
                _ = self.terminate.recv() => break,
                _ = self.interrupt.recv() => break,
                failure = app.task_failure() => {
                    tracing::error!("shutting down without draining: {failure}");
                    app.abort().await;
                    return Err(Failed(Exit::Failure));
                }
            }
        }
        tracing::info!("shutting down: draining (up to {})", app.drain_timeout());
        app.stop().await;
        tracing::info!("stopped");
        Ok(())
    }
}

async fn reload(app: &App, file: &ConfigFile) {
    file.warn_if_changed();
    match app.reload().await {
        Ok(rules) => tracing::info!(rules, "reloaded"),
        Err(error) => tracing::error!("reload refused, nothing changed: {error}"),
    }
}

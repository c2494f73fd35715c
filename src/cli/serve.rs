//! `deskgate serve`

use std::io::Write;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ConfigArgs, Failed, log, print_error, print_faults, runtime};
use crate::app::{App, RuleSource};

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failed> {
    let config = args.load().map_err(|faults| print_faults(&faults))?;
    let _log = log::start(&config.log).map_err(print_error)?;
    let rules = RuleSource::Folder(config.rules.dir.clone());
    let runtime = runtime(config.server.threads)?;
    runtime.block_on(async {
        let signals = Signals::listen()?;
        let app = App::start(config, rules).await.map_err(print_error)?;
        say_ready(&app);
        signals.until_told_to_stop(&app).await;
        app.stop().await;
        Ok(())
    })
}

/// One line on standard output for whoever started us: where everything listens.
fn say_ready(app: &App) {
    let platform = app.platform.as_ref().map(|platform| format!(" platform={}", platform.address()));
    let line = format!("ready listen={} admin={}{}", app.listen, app.admin, platform.unwrap_or_default());
    tracing::info!("{line}");
    let mut out = std::io::stdout().lock();
    // Whoever closed our output does not want to know.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// What we are told while we run. Listened for before anybody knows that we are there: a SIGHUP that
/// came too early would end the process.
pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Failed> {
        let listen = |kind| signal(kind).map_err(|error| print_error(format!("signals cannot be heard: {error}")));
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Reloads on SIGHUP and when watched rules change, returns on SIGTERM or SIGINT.
    pub(super) async fn until_told_to_stop(mut self, app: &App) {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => reload(app).await,
                () = app.rules_changed() => reload(app).await,
                _ = self.terminate.recv() => break,
                _ = self.interrupt.recv() => break,
            }
        }
        tracing::info!("stopping: open requests may end");
    }
}

async fn reload(app: &App) {
    match app.reload().await {
        Ok(rules) => tracing::info!(rules, "reloaded"),
        Err(fault) => tracing::error!("reload refused, nothing changed: {fault}"),
    }
}

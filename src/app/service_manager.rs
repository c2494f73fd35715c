//! systemd: sockets that it opened for us (LISTEN_FDS), and the state of the process that it asks for (NOTIFY_SOCKET,
//! WATCHDOG_USEC). Both are documented protocols, so its library is not needed.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::descriptor_passing;
use super::inherited::Inherited;

/// The number of the first socket that systemd passes.
const FIRST_SOCKET: RawFd = 3;

/// The connection to the service manager. Without one, nothing is sent.
#[derive(Debug)]
pub struct ServiceManager {
    notify: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

/// Whether the service manager knows this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartKind {
    /// It has started it.
    Normal,
    /// This process takes the place of the one that it has started, with its watchdog.
    Upgrade,
}

impl ServiceManager {
    /// Reads the environment.
    pub fn from_environment(start: StartKind) -> Self {
        let notify = variable("NOTIFY_SOCKET").and_then(|name| {
            let connected = connect(&name);
            connected.inspect_err(|error| tracing::warn!(%error, "cannot reach NOTIFY_SOCKET {name}")).ok()
        });
        let is_ours = start == StartKind::Upgrade || variable("WATCHDOG_PID").is_none_or(|pid| is_own_pid(&pid));
        let watchdog = variable("WATCHDOG_USEC").filter(|_| is_ours).and_then(|limit| limit.parse().ok());
        Self { notify, watchdog: watchdog.map(Duration::from_micros) }
    }

    /// The gateway accepts requests.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// This process is the service now.
    pub fn taken_over(&self) {
        self.send(&format!("MAINPID={}", std::process::id()));
    }

    /// A reload begins; it ends with [`ServiceManager::ready`].
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// The drain begins.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Shows the watchdog, if there is one, that the runtime still runs tasks: must be spawned on it.
    pub async fn feed_watchdog(&self) {
        let Some(limit) = self.watchdog else { return };
        let mut tick = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.notify
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::debug!(%error, "the service manager was not notified");
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn is_own_pid(text: &str) -> bool {
    text.parse() == Ok(std::process::id())
}

fn connect(name: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not block us.
    socket.set_nonblocking(true)?;
    Ok((socket, notify_address(name)?))
}

/// A path, or after an `@` the name of an abstract socket.
fn notify_address(name: &str) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}

/// The sockets that systemd has opened for this process, if it has.
pub fn activated_sockets() -> io::Result<Inherited> {
    let mut inherited = Inherited::default();
    let count = variable("LISTEN_FDS").filter(|_| variable("LISTEN_PID").is_some_and(|pid| is_own_pid(&pid)));
    let Some(count) = count.and_then(|count| count.parse::<RawFd>().ok()) else { return Ok(inherited) };
    let sockets: Vec<RawFd> = (FIRST_SOCKET..FIRST_SOCKET.saturating_add(count)).collect();
    for socket in descriptor_passing::own(&sockets)? {
        inherited.add(None, None, socket)?;
    }
    Ok(inherited)
}

#[cfg(test)]
mod tests;

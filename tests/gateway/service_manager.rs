//! systemd: socket activation and the states that the gateway reports.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::*;

/// The socket that a service manager reads.
struct Notifications {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Notifications {
    fn listen() -> Notifications {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        Notifications { socket, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// The next state that is not one of the watchdog.
    async fn next(&self) -> String {
        let socket = self.socket.try_clone().expect("a socket");
        let received = tokio::task::spawn_blocking(move || {
            loop {
                let mut buffer = [0; 512];
                let length = socket.recv(&mut buffer).expect("a notification");
                let state = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if state != "WATCHDOG=1" {
                    return state;
                }
            }
        });
        received.await.expect("a state")
    }
}

#[tokio::test]
async fn states_of_the_gateway_are_reported_to_systemd() {
    let systemd = Notifications::listen();
    let mut desk = Gateway::setup().environment("NOTIFY_SOCKET", systemd.path()).start().await;
    assert_eq!(systemd.next().await, "READY=1");
    desk.signal("HUP");
    let reloading = systemd.next().await;
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(systemd.next().await, "READY=1", "the end of the reload");
    std::fs::write(desk.rules_file(), "[[rule]").expect("bad rules");
    desk.signal("HUP");
    assert!(systemd.next().await.starts_with("RELOADING=1"));
    assert_eq!(systemd.next().await, "READY=1", "a refused reload ends, too");
    desk.signal("TERM");
    assert_eq!(systemd.next().await, "STOPPING=1");
    assert_eq!(desk.wait_for_end().await.code(), Some(0));
}

#[tokio::test]
async fn new_process_of_an_upgrade_reports_itself_as_the_main_one() {
    let systemd = Notifications::listen();
    let mut desk = Gateway::setup().environment("NOTIFY_SOCKET", systemd.path()).start().await;
    assert_eq!(systemd.next().await, "READY=1");
    let upgraded = desk.try_upgrade(&[], &[("NOTIFY_SOCKET", systemd.path())]).await.expect("an upgrade");
    assert_eq!(upgraded.code(), Some(0));
    // The old process does not say STOPPING. It ends after the new one has said that it is ready, and so after the first of these.
    assert_eq!(systemd.next().await, format!("MAINPID={}", desk.pid()));
    assert_eq!(systemd.next().await, "READY=1");
}

#[tokio::test]
async fn watchdog_is_fed_while_the_gateway_runs_and_not_while_it_is_stopped() {
    let systemd = Notifications::listen();
    let setup = Gateway::setup().environment("NOTIFY_SOCKET", systemd.path()).environment("WATCHDOG_USEC", "200000");
    let desk = setup.start().await;
    let socket = systemd.socket.try_clone().expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    let received = |socket: &UnixDatagram| {
        let mut buffer = [0; 64];
        socket.recv(&mut buffer).ok().map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    let fed = (0..4).filter_map(|_| received(&socket)).filter(|state| state == "WATCHDOG=1").count();
    assert!(fed >= 3, "{fed}");
    desk.signal("STOP");
    let silent = std::iter::from_fn(|| received(&socket)).take(50).count();
    assert!(silent < 50, "a process that does nothing feeds no watchdog");
    desk.signal("CONT");
    socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    assert_eq!(received(&socket).as_deref(), Some("WATCHDOG=1"));
}

#[tokio::test]
async fn socket_of_systemd_is_used_and_survives_a_restart() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = socket.local_addr().expect("an address");
    let mut desk = Gateway::setup().activated(socket.try_clone().expect("a duplicate")).start().await;
    assert_eq!(desk.address(), address);
    desk.anonymous().get("/api/ready").await.expect_code(0);
    assert!(!desk.logs().contains("no setting names it"), "{}", desk.logs());
    assert_eq!(desk.terminate().await.code(), Some(0));
    // systemd holds the socket: a client that connects between two processes waits.
    let mut waiting = Connection::open(address).await;
    waiting.send(&raw_request(&desk, "GET /api/ready", "", b"")).await;
    drop(socket);
    assert!(waiting.closes_within(TEST_TIMEOUT).await, "nobody holds the socket any more");
}

#[tokio::test]
async fn socket_that_no_setting_names_is_closed_with_a_warning() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = socket.local_addr().expect("an address");
    let desk = Gateway::setup().activated(socket).set("server.listen", "127.0.0.1:0").start().await;
    assert_ne!(desk.address(), address);
    desk.wait_for_log(&["WARN", &address.to_string(), "no setting names it"]).await;
}

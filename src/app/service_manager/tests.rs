use super::*;

fn received(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).expect("a datagram");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

fn manager(name: &str, watchdog: Option<Duration>) -> ServiceManager {
    ServiceManager { notify: Some(connect(name).expect("an address")), watchdog }
}

#[test]
fn states_reach_a_path_and_an_abstract_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify").display().to_string();
    for name in [path.clone(), format!("@{path}")] {
        let socket = UnixDatagram::bind_addr(&notify_address(&name).expect("an address")).expect("a socket");
        let manager = manager(&name, None);
        manager.ready();
        assert_eq!(received(&socket), "READY=1");
        manager.taken_over();
        assert_eq!(received(&socket), format!("MAINPID={}", std::process::id()));
        manager.reloading();
        let state = received(&socket);
        let since = state.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a reload");
        assert!(since.parse::<u64>().is_ok_and(|since| since > 0), "{state}");
        manager.stopping();
        assert_eq!(received(&socket), "STOPPING=1");
    }
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_is_fed_twice_in_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify").display().to_string();
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let manager = manager(&path, Some(Duration::from_secs(10)));
    let _ = tokio::time::timeout(Duration::from_secs(21), manager.feed_watchdog()).await;
    for _ in 0..5 {
        assert_eq!(received(&socket), "WATCHDOG=1");
    }
    socket.set_nonblocking(true).expect("a socket");
    assert!(socket.recv(&mut [0]).is_err(), "one at the start and one every five seconds");
}

#[test]
fn nobody_listening_is_no_failure() {
    manager("/nowhere/notify", None).ready();
    ServiceManager { notify: None, watchdog: None }.ready();
}

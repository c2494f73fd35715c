use tokio::net::UnixListener;

use super::*;
use crate::admin::command::RoleCommand;

/// A control socket whose process never accepts a connection by itself.
fn unresponsive_gateway() -> (tempfile::TempDir, UnixListener) {
    let data = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(data.path().join(SOCKET_FILE)).expect("a socket");
    (data, listener)
}

async fn send_role_list(timeout: Duration, data: &Path) -> ControlError {
    let command = AdminCommand::Role(RoleCommand::List { role: None, employee_id: None });
    send_within::<CommandOutput>(timeout, data, &command).await.expect_err("no result")
}

#[tokio::test]
async fn a_gateway_that_does_not_respond_times_out() {
    let (data, _listener) = unresponsive_gateway();
    assert!(matches!(send_role_list(Duration::from_millis(20), data.path()).await, ControlError::Timeout));
}

#[tokio::test]
async fn a_stopped_gateway_is_not_mistaken_for_one_of_another_version() {
    for (answer, has_stopped) in [("", true), ("{\"Ok\":", true), ("{\"Ok\":{}}\n", false)] {
        let (data, listener) = unresponsive_gateway();
        let sent = send_role_list(COMMAND_TIMEOUT, data.path());
        let gateway = async {
            let (mut stream, _) = listener.accept().await.expect("a command");
            let mut line = String::new();
            BufReader::new(&mut stream).read_line(&mut line).await.expect("a line");
            stream.write_all(answer.as_bytes()).await.expect("an answer");
        };
        let error = tokio::join!(sent, gateway).0;
        assert_eq!(matches!(error, ControlError::Stopped), has_stopped, "{answer}: {error}");
    }
}

#[tokio::test]
async fn a_socket_without_a_listener_means_that_no_gateway_is_running() {
    let (data, listener) = unresponsive_gateway();
    drop(listener);
    assert!(matches!(send_role_list(COMMAND_TIMEOUT, data.path()).await, ControlError::NotRunning));
}

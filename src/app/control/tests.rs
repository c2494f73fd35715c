use super::*;
use crate::admin::roles::RoleCommand;

/// A gateway that takes orders and does nothing about them.
fn deaf() -> (tempfile::TempDir, UnixListener) {
    let data = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(data.path().join(FILE)).expect("a socket");
    (data, listener)
}

async fn ask(patience: Duration, data: &Path) -> ControlFault {
    let order = Command::Role(RoleCommand::List { role: None, employee_id: None });
    call_within(patience, data, &order).await.expect_err("no answer")
}

#[tokio::test]
async fn a_gateway_that_says_nothing_is_not_waited_for_for_ever() {
    let (data, _listener) = deaf();
    assert!(matches!(ask(Duration::from_millis(20), data.path()).await, ControlFault::Silent));
}

#[tokio::test]
async fn a_gateway_that_ends_before_it_has_answered_is_told_from_one_of_another_version() {
    for (answer, has_ended) in [("", true), ("{\"Ok\":", true), ("{\"Ok\":{}}\n", false)] {
        let (data, listener) = deaf();
        let asked = ask(PATIENCE, data.path());
        let ended = async {
            let (mut stream, _) = listener.accept().await.expect("an order");
            let mut order = String::new();
            BufReader::new(&mut stream).read_line(&mut order).await.expect("a line");
            stream.write_all(answer.as_bytes()).await.expect("an answer");
        };
        let fault = tokio::join!(asked, ended).0;
        assert_eq!(matches!(fault, ControlFault::Ended), has_ended, "{answer}: {fault}");
    }
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on_means_that_none_is_running() {
    let (data, listener) = deaf();
    drop(listener);
    assert!(matches!(ask(PATIENCE, data.path()).await, ControlFault::NotRunning));
}

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::*;

fn listen(data: &Path) -> UnixListener {
    let path = data.join(SOCKET_FILE);
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(path).expect("a socket")
}

async fn accept(listener: &UnixListener) -> UnixStream {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    BufReader::new(&mut stream).read_line(&mut String::new()).await.expect("a command");
    stream
}

async fn publish(stream: &mut UnixStream, event: FollowEvent) {
    let line = serde_json::to_string(&Ok::<_, CommandError>(event)).expect("JSON");
    stream.write_all(format!("{line}\n").as_bytes()).await.expect("written");
}

async fn accept_follower(listener: &UnixListener) -> UnixStream {
    let mut stream = accept(listener).await;
    publish(&mut stream, FollowEvent::Started).await;
    stream
}

async fn started(data: &Path, listener: &UnixListener, wait: Duration) -> (GatewayFollower, UnixStream) {
    let start = GatewayFollower::start(data, FollowFilter::default(), wait);
    let (follower, stream) = tokio::join!(start, accept_follower(listener));
    (follower.expect("a follower"), stream)
}

#[tokio::test]
async fn a_gateway_that_does_not_come_back_ends_the_wait_after_a_few_attempts() {
    let data = tempfile::tempdir().expect("a folder");
    let listener = listen(data.path());
    let wait = Duration::from_millis(500);
    let (mut follower, stream) = started(data.path(), &listener, wait).await;
    drop(stream);
    assert_eq!(follower.next().await.expect("an update"), FollowUpdate::Gone);
    // It accepts and ends before it publishes anything, as in a loop of failing starts.
    let attempts = async {
        let mut count = 0;
        loop {
            drop(accept(&listener).await);
            count += 1;
            if count > 5 {
                return count;
            }
        }
    };
    let began = Instant::now();
    let error = tokio::select! {
        update = follower.next() => update.expect_err("no gateway"),
        count = attempts => panic!("{count} attempts within {wait:?}"),
    };
    assert!(matches!(&error, FollowError::NotBack(waited) if waited.get() == wait), "{error}");
    assert!(began.elapsed() <= wait * 10, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_gateway_that_does_not_answer_ends_the_wait() {
    let data = tempfile::tempdir().expect("a folder");
    let listener = listen(data.path());
    let (mut follower, stream) = started(data.path(), &listener, Duration::from_millis(200)).await;
    drop(stream);
    assert_eq!(follower.next().await.expect("an update"), FollowUpdate::Gone);
    let error = follower.next().await.expect_err("no answer");
    assert!(matches!(error, FollowError::NotBack(_)), "{error}");
}

#[tokio::test]
async fn without_a_wait_the_end_of_the_gateway_is_the_end() {
    let data = tempfile::tempdir().expect("a folder");
    let listener = listen(data.path());
    let (mut follower, stream) = started(data.path(), &listener, Duration::ZERO).await;
    drop(stream);
    let error = follower.next().await.expect_err("the end");
    assert!(matches!(error, FollowError::Ended), "{error}");
}

#[tokio::test]
async fn both_gateways_are_followed_while_one_takes_over() {
    let data = tempfile::tempdir().expect("a folder");
    let listener = listen(data.path());
    let (mut follower, mut old) = started(data.path(), &listener, Duration::from_secs(60)).await;
    let successor = listen(data.path());
    let (update, mut new) = tokio::join!(follower.next(), accept_follower(&successor));
    assert_eq!(update.expect("an update"), FollowUpdate::TakenOver);
    for count in 1..=4 {
        let stream = if count % 2 == 0 { &mut new } else { &mut old };
        publish(stream, FollowEvent::Lost(count)).await;
        assert_eq!(follower.next().await.expect("an update"), FollowUpdate::Event(FollowEvent::Lost(count)));
    }
    drop(old);
    publish(&mut new, FollowEvent::Lost(5)).await;
    assert_eq!(follower.next().await.expect("an update"), FollowUpdate::Event(FollowEvent::Lost(5)));
    drop(new);
    assert_eq!(follower.next().await.expect("an update"), FollowUpdate::Gone);
}

#[tokio::test]
async fn an_event_of_which_a_part_has_arrived_is_not_lost() {
    let data = tempfile::tempdir().expect("a folder");
    let listener = listen(data.path());
    let (mut follower, mut gateway) = started(data.path(), &listener, Duration::from_secs(60)).await;
    gateway.write_all(b"{\"Ok\":{\"lo").await.expect("written");
    let first = timeout(Duration::from_millis(50), follower.next()).await;
    assert!(first.is_err(), "{first:?}");
    gateway.write_all(b"st\":7}}\n").await.expect("written");
    assert_eq!(follower.next().await.expect("an update"), FollowUpdate::Event(FollowEvent::Lost(7)));
}

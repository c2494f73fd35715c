use pingora_core::protocols::l4::stream::Stream as TcpTransport;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;

const PEER: u64 = 7;

/// Both ends of a connection.
async fn connect_tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.expect("connected"), far.expect("accepted").0)
}

/// A connection and the upstream's end of it.
async fn connect() -> (PooledConnection, TcpStream) {
    let (near, far) = connect_tcp().await;
    (PooledConnection::new(Box::new(PlainStream::new(near))), far)
}

/// Whether a pool gives a connection out, as a TCP connection and as one of another kind, after the upstream has acted. What `act`
/// returns stays open.
async fn is_taken_after<F: Future<Output = Option<TcpStream>>>(act: impl Fn(TcpStream) -> F) -> [bool; 2] {
    let kinds: [fn(TcpStream) -> Stream; 2] =
        [|tcp| Box::new(PlainStream::new(tcp)), |tcp| Box::new(TcpTransport::from(tcp))];
    let mut taken = [true; 2];
    for (kind, taken) in kinds.iter().zip(&mut taken) {
        let pool = IdlePool::new(1, 8);
        let (near, far) = connect_tcp().await;
        let _far = act(far).await;
        near.readable().await.expect("something to read");
        pool.put(PEER, PooledConnection::new(kind(near)), None);
        *taken = pool.take(PEER, Instant::now()).is_some();
    }
    taken
}

#[tokio::test]
async fn the_connection_that_was_used_last_is_taken_first() {
    let pool = IdlePool::new(1, 8);
    let (first, _far) = connect().await;
    let (last, _far) = connect().await;
    let id = last.stream.id();
    pool.put(PEER, first, None);
    pool.put(PEER, last, None);
    assert!(pool.take(PEER + 1, Instant::now()).is_none(), "another peer has none");
    assert_eq!(pool.take(PEER, Instant::now()).expect("a connection").stream.id(), id);
    assert!(pool.take(PEER, Instant::now()).is_some());
    assert!(pool.take(PEER, Instant::now()).is_none());
}

#[tokio::test]
async fn a_connection_that_the_upstream_has_closed_is_not_taken() {
    assert_eq!(is_taken_after(|_| async { None }).await, [false; 2]);
}

#[tokio::test]
async fn a_connection_with_a_byte_too_many_is_not_taken() {
    let send = |mut far: TcpStream| async move {
        far.write_all(b"x").await.expect("sent");
        Some(far)
    };
    assert_eq!(is_taken_after(send).await, [false; 2]);
}

#[tokio::test]
async fn a_connection_that_was_idle_or_open_for_too_long_is_not_taken() {
    let pool = IdlePool::new(1, 8);
    let (connection, _far) = connect().await;
    pool.put(PEER, connection, Some(Instant::now()));
    assert!(pool.take(PEER, Instant::now()).is_none());
    let (mut connection, _far) = connect().await;
    let Some(opened) = connection.opened.checked_sub(LONGEST_USE) else { return };
    connection.opened = opened;
    pool.put(PEER, connection, None);
    assert!(pool.take(PEER, Instant::now()).is_none());
}

#[tokio::test]
async fn the_sweep_closes_what_cannot_be_used() {
    let pool = IdlePool::new(1, 8);
    let (connection, mut far) = connect().await;
    let (kept, _kept_far) = connect().await;
    pool.put(PEER, connection, Some(Instant::now()));
    pool.put(PEER, kept, Some(Instant::now() + Duration::from_secs(60)));
    pool.sweep();
    assert_eq!(far.read(&mut [0]).await.expect("the end"), 0);
    assert_eq!(lock(&pool.shards[0]).count, 1);
    assert!(pool.take(PEER, Instant::now()).is_some());
}

#[tokio::test]
async fn a_full_shard_keeps_the_connections_that_were_used_last() {
    let pool = IdlePool::new(1, 2);
    let mut ids = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..3 {
        let (connection, far) = connect().await;
        ids.push(connection.stream.id());
        ends.push(far);
        pool.put(PEER, connection, None);
    }
    let taken: Vec<_> = std::iter::from_fn(|| pool.take(PEER, Instant::now())).map(|taken| taken.stream.id()).collect();
    assert_eq!(taken, [ids[2], ids[1]]);
}

#[tokio::test]
async fn a_thread_without_a_connection_takes_one_of_another_thread() {
    let pool = std::sync::Arc::new(IdlePool::new(4, 8));
    let (connection, _far) = connect().await;
    let id = connection.stream.id();
    let other = pool.clone();
    std::thread::spawn(move || other.put(PEER, connection, None)).join().expect("put");
    assert_eq!(pool.take(PEER, Instant::now()).expect("a connection").stream.id(), id);
}

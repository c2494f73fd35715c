use tokio::net::TcpListener;

use super::*;

async fn connected() -> (PlainStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let far = TcpStream::connect(listener.local_addr().expect("an address"));
    let (accepted, far) = tokio::join!(listener.accept(), far);
    (PlainStream::new(accepted.expect("accepted").0), far.expect("connected"))
}

#[tokio::test]
async fn peeked_and_rewound_bytes_are_read_first_and_once() {
    let (mut near, mut far) = connected().await;
    far.write_all(b"cdef").await.expect("sent");
    far.shutdown().await.expect("closed");
    near.rewind(b"ab");
    let mut first = [0; 3];
    near.peek(&mut first).await.expect("three bytes");
    assert_eq!(&first, b"abc");
    near.peek(&mut first[..1]).await.expect("one byte");
    let mut all = String::new();
    near.read_to_string(&mut all).await.expect("read to the end");
    assert_eq!(all, "abcdef");
}

#[tokio::test]
async fn peek_fails_if_the_connection_ends_before() {
    let (mut near, mut far) = connected().await;
    far.write_all(b"PR").await.expect("sent");
    far.shutdown().await.expect("closed");
    let failed = near.peek(&mut [0; 3]).await.expect_err("two bytes are not three");
    assert_eq!(failed.kind(), io::ErrorKind::UnexpectedEof);
}

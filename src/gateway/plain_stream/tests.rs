use std::future::poll_fn;

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

#[tokio::test]
async fn what_a_full_socket_does_not_take_is_sent_once_the_far_end_reads() {
    const LENGTH: usize = 16 * 1024 * 1024;
    let (mut near, mut far) = connected().await;
    let sent = vec![7; LENGTH];
    let mut read = Vec::new();
    let writing = async {
        near.write_all(&sent).await.expect("sent");
        Shutdown::shutdown(&mut near).await;
    };
    let (_, reading) = tokio::join!(writing, far.read_to_end(&mut read));
    assert_eq!((reading.ok(), read == sent), (Some(LENGTH), true));
}

#[tokio::test]
async fn write_to_a_connection_that_was_reset_fails() {
    let (mut near, far) = connected().await;
    far.set_zero_linger().expect("a reset instead of an end");
    drop(far);
    near.read_u8().await.expect_err("reset");
    near.write_all(b"a").await.expect_err("no connection");
}

#[tokio::test]
async fn reads_of_every_size_give_what_was_sent_and_then_the_end() {
    const LENGTH: usize = 200_000;
    let sent: Vec<u8> = (0..LENGTH).map(|number| (number % 251) as u8).collect();
    for size in [1, 100, SMALL_READ - 1, SMALL_READ, SMALL_READ + 1, LENGTH] {
        let (mut near, mut far) = connected().await;
        let mut read = Vec::new();
        let reading = async {
            let mut buffer = vec![0; size];
            loop {
                match near.read(&mut buffer).await.expect("a read") {
                    0 => break,
                    count => read.extend_from_slice(&buffer[..count]),
                }
            }
            near.read(&mut buffer).await.expect("the end stays")
        };
        let writing = async {
            far.write_all(&sent).await.expect("sent");
            far.shutdown().await.expect("closed");
        };
        let (after_the_end, ()) = tokio::join!(reading, writing);
        assert_eq!((after_the_end, read == sent), (0, true), "reads of {size} bytes");
    }
}

#[tokio::test]
async fn read_of_a_connection_that_was_reset_fails() {
    let (mut near, far) = connected().await;
    far.set_zero_linger().expect("a reset instead of an end");
    drop(far);
    let failed = near.read(&mut [0; 10]).await.expect_err("reset");
    assert_eq!(failed.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_buffer_has_memory_only_once_something_has_come() {
    let (near, mut far) = connected().await;
    let mut buffer = Buffer::default();
    assert!(poll_fn(|cx| Poll::Ready(near.poll_extend(&mut buffer, cx))).await.is_pending());
    assert_eq!(buffer.capacity(), 0);
    far.write_all(b"abc").await.expect("sent");
    assert_eq!(poll_fn(|cx| near.poll_extend(&mut buffer, cx)).await.ok(), Some(3));
    assert!(poll_fn(|cx| Poll::Ready(near.poll_extend(&mut buffer, cx))).await.is_pending());
    assert_eq!(**buffer, *b"abc");
    drop(far);
    assert_eq!(poll_fn(|cx| near.poll_extend(&mut buffer, cx)).await.ok(), Some(0), "the end");
    assert_eq!(**buffer, *b"abc");
}

#[tokio::test]
async fn a_full_buffer_grows() {
    let (near, mut far) = connected().await;
    let sent: Vec<u8> = (0..3 * CAPACITY).map(|number| (number % 251) as u8).collect();
    far.write_all(&sent).await.expect("sent");
    drop(far);
    let mut buffer = Buffer::default();
    while poll_fn(|cx| near.poll_extend(&mut buffer, cx)).await.expect("read") > 0 {}
    assert!(**buffer == sent);
}

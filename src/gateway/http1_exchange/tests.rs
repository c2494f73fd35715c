use super::super::response_framing::MOST_BYTES;
use super::*;

fn body_of(head: &str) -> Result<ResponseBody, InvalidResponse> {
    ReadHead::read(head.as_bytes()).map(|head| head.expect("a whole head").framing.body())
}

#[test]
fn a_response_that_can_be_read_in_two_ways_is_an_error() {
    assert_eq!(body_of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), Ok(ResponseBody::Length(5)));
    assert_eq!(body_of("HTTP/1.0 200 OK\r\n\r\n"), Ok(ResponseBody::UntilClose));
    let chunked = body_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n");
    assert!(matches!(chunked, Ok(ResponseBody::Chunked(_))));
    for lines in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: \r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length : 5\r\n",
        "X: a\r\n b\r\n",
    ] {
        assert!(body_of(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n")).is_err(), "{lines}");
    }
}

#[test]
fn an_endless_head_is_an_error() {
    let head = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(MOST_BYTES));
    assert!(ReadHead::read(head.as_bytes()).is_err());
    assert!(matches!(ReadHead::read(b"HTTP/1.1 200 OK\r\nX: "), Ok(None)));
}

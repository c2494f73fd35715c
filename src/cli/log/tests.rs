use super::without_secrets;

#[test]
fn queries_and_raw_heads_never_reach_the_log() {
    let table = [
        ("Fail to proxy: GET /a?token=secret, Host: h", "Fail to proxy: GET /a?…, Host: h"),
        ("GET /a?token=secret HTTP/1.1", "GET /a?… HTTP/1.1"),
        ("InvalidHTTPHeader buf: GET /?token=secret", "InvalidHTTPHeader "),
        ("two\r\nlines", "two\u{fffd}\u{fffd}lines"),
        ("plain", "plain"),
    ];
    for (line, expected) in table {
        assert_eq!(without_secrets(line), expected);
    }
}

use super::redact;

#[test]
fn query_strings_and_raw_heads_are_removed_from_log_lines() {
    let table = [
        ("Fail to proxy: GET /a?token=secret, Host: h", "Fail to proxy: GET /a?…, Host: h"),
        ("GET /a?token=secret HTTP/1.1", "GET /a?… HTTP/1.1"),
        ("InvalidHTTPHeader buf: GET /?token=secret", "InvalidHTTPHeader "),
        ("two\r\nlines", "two\u{fffd}\u{fffd}lines"),
        ("plain", "plain"),
    ];
    for (line, expected) in table {
        assert_eq!(redact(line), expected);
    }
}

use super::*;

#[test]
fn addresses_are_formatted_like_the_standard_library_does() {
    let table =
        ["0.0.0.0", "1.2.3.4", "10.20.30.40", "127.0.0.1", "192.168.100.9", "255.255.255.255", "::1", "2001:db8::9"];
    for text in table {
        let parsed: IpAddr = text.parse().expect("an address");
        assert_eq!(address(parsed), text);
    }
}

#[test]
fn several_cookie_lines_are_joined_into_one() {
    let table: &[(&[&str], &str)] =
        &[(&["a=1"], "a=1"), (&["a=1", "b=2"], "a=1; b=2"), (&["a=1; b=2", "c=3", "d=4"], "a=1; b=2; c=3; d=4")];
    for (lines, expected) in table {
        let mut headers = HeaderMap::new();
        for line in *lines {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        join_cookies(&mut headers);
        let joined: Vec<&HeaderValue> = headers.get_all(COOKIE).iter().collect();
        assert_eq!(joined, [expected], "{lines:?}");
    }
}

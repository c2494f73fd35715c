use super::*;

#[test]
fn devices_are_called_what_people_call_them() {
    let table = [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "Firefox · Linux"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120 Safari/537.36 Edg/120",
            "Edge · Windows",
        ),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1 Version/17 Safari/605.1", "Safari · macOS"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) wxwork/4.1 MicroMessenger/7.0", "WeCom · iPhone"),
        ("Mozilla/5.0 (Linux; Android 14) Chrome/120 Mobile Safari/537.36", "Chrome · Android"),
        ("curl/8.5.0", "curl"),
        ("", "?"),
    ];
    for (agent, expected) in table {
        assert_eq!(describe(agent), expected, "{agent}");
    }
}

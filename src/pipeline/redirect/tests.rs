use super::*;

#[test]
fn origin_has_the_requests_host_if_it_is_configured_and_the_port_of_the_public_url() {
    let hosts = ["Desk.example.com", "admin.example.com:80", "[2001:db8::1]", "10.0.0.1"];
    let hosts: Vec<HostEntry> = hosts.iter().map(|host| host.parse().expect("a host")).collect();
    for (public_url, host, expected) in [
        ("https://desk.example.com/", "desk.example.com", "https://Desk.example.com"),
        ("https://desk.example.com/", "DESK.example.com.:8080", "https://Desk.example.com"),
        ("https://desk.example.com/", "admin.example.com:80", "https://admin.example.com"),
        ("https://desk.example.com:8443/", "admin.example.com:80", "https://admin.example.com:8443"),
        ("https://desk.example.com:8443/", "[2001:db8:0::1]:80", "https://[2001:db8::1]:8443"),
        ("https://desk.example.com/", "10.0.0.1", "https://10.0.0.1"),
        ("https://desk.example.com:8443/", "evil.example", "https://desk.example.com:8443"),
        ("https://desk.example.com/", "localhost", "https://desk.example.com"),
    ] {
        let target = RedirectTarget::new(&public_url.parse().expect("a URL"), &hosts);
        let host = RequestHost::parse(host.as_bytes()).expect("a host");
        assert_eq!(target.origin(Some(&host)), expected, "{public_url}, {}", host.as_str());
    }
    let target = RedirectTarget::new(&"https://desk.example.com/".parse().expect("a URL"), &hosts);
    assert_eq!(target.origin(None), "https://desk.example.com");
}

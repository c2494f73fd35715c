use super::*;

#[test]
fn headers_are_classified_in_every_spelling() {
    use SpoofableHeader::*;
    let table: &[(SpoofableHeader, &[&str])] = &[
        (Identity, &["x-deskgate-roles", "X-Deskgate-Employee-Id"]),
        (LookAlike, &["x_deskgate_roles", "X-Deskgate.Name", "x_request_id", "X.Request.Id", "X-REQUEST_ID"]),
        (Address, &["True-Client-IP", "true_client_ip", "CF-Connecting-IP", "cf.connecting.ip", "X_Client_IP"]),
        (Address, &["x-cluster-client-ip", "X-Real-IP", "x_real_ip", "Client-IP", "Proxy-Client-IP"]),
        (Proxy, &["Proxy", "proxy", "PROXY"]),
        (Forwarding, &["Forwarded", "X-Forwarded-For", "x_forwarded_host", "X-Original-URL", "X-HTTP-Method-Override"]),
    ];
    for (kind, names) in table {
        for name in *names {
            assert_eq!(SpoofableHeader::of(name), Some(*kind), "{name}");
        }
    }
}

#[test]
fn other_headers_are_forwarded() {
    for name in [
        "",
        "x-request-id",
        "X-Request-Id",
        "X-Request-Ids",
        "x-client-ips",
        "x-client-version",
        "proxy-authorization",
        "proxyx",
        "cookie",
        "content-type",
        "traceparent",
        "te",
        "x",
        "x-real",
        "cf-ray",
        "via",
        "from",
    ] {
        assert_eq!(SpoofableHeader::of(name), None, "{name}");
    }
}

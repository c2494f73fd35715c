use super::*;

#[test]
fn headers_are_classified_in_every_spelling() {
    use SpoofableHeader::*;
    let table: &[(SpoofableHeader, &[&str])] = &[
        (Identity, &["x-deskgate-roles", "X-Deskgate-Employee-Id"]),
        (LookAlike, &["x_deskgate_roles", "X-Deskgate.Name", "x_request_id", "X.Request.Id", "X-REQUEST_ID"]),
        (Address, &["True-Client-IP", "true_client_ip", "CF-Connecting-IP", "cf.connecting.ip", "X_Client_IP"]),
        (Address, &["x-cluster-client-ip", "X-Real-IP", "x_real_ip", "Client-IP", "Proxy-Client-IP"]),
        (Address, &["WL-Proxy-Client-IP", "wl_proxy_client_ip", "proxy_client_ip", "HTTP_CLIENT_IP", "http-client-ip"]),
        (Address, &["Remote-Addr", "REMOTE_ADDR", "X-Remote-Addr", "x_remote_ip", "X-ProxyUser-Ip", "x_proxyuser_ip"]),
        (Address, &["X-Envoy-External-Address", "X.Envoy.External.Address", "Ali-CDN-Real-IP", "ali_cdn_real_ip"]),
        (Address, &["X-Azure-ClientIP", "X_Azure_SocketIP", "X-AppEngine-User-IP", "x_appengine_user_ip"]),
        (Proxy, &["Proxy", "proxy", "PROXY", "HTTP_PROXY"]),
        (Forwarding, &["HTTP_X_FORWARDED_FOR", "http-x-forwarded-for", "HTTP_FORWARDED", "Http.X.Original.Url"]),
        (LookAlike, &["HTTP_X_DESKGATE_ROLES", "http_x-deskgate-roles", "HTTP_X_REQUEST_ID", "http-x-request-id"]),
        (Address, &["HTTP_X_REAL_IP", "http_true_client_ip", "HTTP_REMOTE_ADDR"]),
        (Forwarding, &["Forwarded", "X-Forwarded-For", "x_forwarded_host", "X-Original-URL", "X-HTTP-Method-Override"]),
        (
            Framing,
            &["Transfer_Encoding", "Content_Length", "content.length", "HTTP_CONTENT_LENGTH", "http-content-length"],
        ),
    ];
    for (kind, names) in table {
        for name in *names {
            assert_eq!(SpoofableHeader::of(name.as_bytes()), Some(*kind), "{name}");
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
        "Content-Length",
        "content-lengths",
        "transfer-encoding",
        "traceparent",
        "te",
        "x",
        "x-real",
        "cf-ray",
        "via",
        "from",
        "accept",
        "accept-encoding",
        "authorization",
        "host",
        "http2-settings",
        "http-referer",
        "http-",
        "http",
        "http-http-client-ip",
        "referer",
        "range",
        "remote-address",
        "www-authenticate",
        "warning",
        "x-azure-ref",
        "x-envoy-attempt-count",
    ] {
        assert_eq!(SpoofableHeader::of(name.as_bytes()), None, "{name}");
    }
}

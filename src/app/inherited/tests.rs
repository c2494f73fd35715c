use super::*;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(ANY_PORT).await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

#[tokio::test]
async fn a_socket_belongs_to_its_setting_and_address() {
    let ((clients, client_address), (admin, admin_address)) = (listener().await, listener().await);
    let mut sockets = ListeningSockets::default();
    sockets.add("server.listen", ANY_PORT, &clients).expect("a duplicate");
    sockets.add("server.admin_listen", ANY_PORT, &admin).expect("a duplicate");
    drop((clients, admin));
    let mut inherited = sockets.duplicate().expect("duplicates");
    assert!(inherited.take("server.listen", admin_address).is_none(), "another setting");
    let taken = inherited.take("server.admin_listen", ANY_PORT).expect("by the address in the setting");
    assert_eq!(taken.local_addr().expect("an address"), admin_address);
    assert_eq!(inherited.unused().collect::<Vec<_>>(), [ANY_PORT]);
    let taken = inherited.take("server.listen", client_address).expect("by its own address");
    assert_eq!(taken.local_addr().expect("an address"), client_address);
    assert!(inherited.take("server.listen", ANY_PORT).is_none(), "taken");
}

#[tokio::test]
async fn a_socket_without_a_setting_belongs_to_its_address() {
    let (socket, address) = listener().await;
    let mut inherited = Inherited::default();
    let socket = socket.as_fd().try_clone_to_owned().expect("a duplicate");
    inherited.add(None, None, socket).expect("a listener");
    assert!(inherited.take("server.listen", ANY_PORT).is_none());
    assert!(inherited.take("server.listen", address).is_some());
}

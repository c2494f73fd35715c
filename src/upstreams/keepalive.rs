//! TCP keepalive of client and upstream connections.

use std::time::Duration;

use pingora_core::protocols::TcpKeepalive;

/// Sends six keep-alive probes after a minute without traffic.
pub(crate) fn tcp_keepalive() -> TcpKeepalive {
    TcpKeepalive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        count: 6,
        user_timeout: Duration::ZERO,
    }
}

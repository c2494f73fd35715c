//! A minimal Pingora proxy that forwards every request to one upstream. `compare.py` measures deskgate
//! against it, so it has the same build flags, the same allocator and one thread.
//!
//! `bare_proxy LISTEN UPSTREAM`, both `address:port`; stops on SIGINT.

use std::net::SocketAddr;
use std::process::ExitCode;

use async_trait::async_trait;
use pingora_core::server::Server;
use pingora_core::server::configuration::{Opt, ServerConf};
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session as Exchange, http_proxy_service};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The pool size of deskgate, enough for every client of the benchmark.
const UPSTREAM_POOL: usize = 1024;

struct BareProxy {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for BareProxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Exchange, (): &mut ()) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
    let mut arguments = std::env::args().skip(1).map_while(|argument| argument.parse().ok());
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        eprintln!("bare_proxy LISTEN UPSTREAM");
        return ExitCode::FAILURE;
    };
    let listen: SocketAddr = listen;
    let conf = ServerConf { threads: 1, upstream_keepalive_pool_size: UPSTREAM_POOL, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(Opt::default(), conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, BareProxy { upstream });
    service.add_tcp(&listen.to_string());
    server.add_service(service);
    server.run_forever()
}

//! `deskgate demo-services`: the simulated platform and the demo help desk alone, for several gateways.

use std::net::SocketAddr;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

use super::{Failed, print_error, runtime};
use crate::demo::{SimulatedPlatform, helpdesk};
use crate::domain::clock::Clock;

/// `deskgate demo-services`
#[derive(Args)]
pub(super) struct DemoServicesArgs {
    /// Address of the simulated platform; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address of the demo help desk; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    helpdesk_listen: SocketAddr,
    /// The URL of the gateways (`server.public_url`), to which the platform may redirect.
    #[arg(long)]
    public_url: Url,
}

pub(super) fn run(args: &DemoServicesArgs) -> Result<(), Failed> {
    // The simulated platform signs anyone in as anyone.
    if let Some(address) = [args.listen, args.helpdesk_listen].into_iter().find(|address| !address.ip().is_loopback()) {
        return Err(print_error(format!(
            "{address} is not a loopback address; the services of the demo are for this machine only"
        )));
    }
    runtime(1)?.block_on(serve(args))
}

#[allow(clippy::print_stdout)] // the command's output
async fn serve(args: &DemoServicesArgs) -> Result<(), Failed> {
    let failed = |error: std::io::Error| print_error(format!("cannot start the services of the demo: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let helpdesk = helpdesk::start(args.helpdesk_listen).await.map_err(failed)?;
    let platform = SimulatedPlatform::start(args.listen, Clock::system()).await.map_err(failed)?;
    let host = args.public_url.host_str().unwrap_or_default();
    let domain = args.public_url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    platform.trust(&[&domain]);
    println!("ready platform={} helpdesk={helpdesk}", platform.address());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    platform.stop().await;
    Ok(())
}

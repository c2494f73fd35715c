//! Looks DNS names of upstreams up, again and again. If a lookup fails, the last answer stays in use; a name that never had
//! one has no addresses, and requests that find none get 1502.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::peer::ResolvedNames;
use super::upstream::{Presence, Upstream};
use super::{Upstreams, keyed_loops};
use crate::config::{UpstreamAddress, UpstreamConfig};
use crate::domain::clock::Timestamp;

/// The names that the last lookup did not find: by upstream, host and port.
pub(super) type FailedNames = BTreeMap<(Arc<str>, String, u16), FailedLookup>;

/// The last lookup of a name that was not found.
#[derive(Debug, Clone)]
pub(super) struct FailedLookup {
    pub(super) at: Timestamp,
    pub(super) why: String,
    /// When a failure of this name was last logged.
    logged: Instant,
}

/// Asks the system's resolver, or a test.
pub(super) type Lookup = Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// How long a start waits for names. It goes on without those that have no answer by then.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after a failed lookup of a name that has no addresses yet.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Looks all names up before the first request, but keeps the start waiting no longer than two seconds.
pub(crate) async fn before_start(upstreams: &Arc<Upstreams>) {
    let lookup = system_lookup();
    let all = (0..upstreams.count()).map(|index| resolve(upstreams, index, &lookup));
    if tokio::time::timeout(START_TIMEOUT, join_all(all)).await.is_err() {
        tracing::warn!("the names of some upstreams are not resolved yet: starting without their addresses");
    }
}

/// Looks names up for as long as the process runs.
pub(crate) async fn run(upstreams: Arc<Upstreams>) {
    run_with(upstreams, system_lookup()).await;
}

pub(super) async fn run_with(upstreams: Arc<Upstreams>, lookup: Lookup) {
    let wanted = || (0..upstreams.count()).filter(|index| named(&upstreams, *index).is_some()).collect();
    let start = |index| follow(upstreams.clone(), index, lookup.clone()).boxed();
    keyed_loops::run(upstreams.changes(), wanted, start).await;
}

/// The upstream, if it has names.
fn named(upstreams: &Upstreams, index: usize) -> Option<Arc<Upstream>> {
    let upstream = upstreams.at(index)?;
    let has_names = upstream.presence == Presence::Configured && upstream.names().next().is_some();
    has_names.then_some(upstream)
}

/// Looks the names of one upstream up until it has none.
async fn follow(upstreams: Arc<Upstreams>, index: usize, lookup: Lookup) -> usize {
    let mut changes = upstreams.changes();
    let mut asked_at: Option<Instant> = None;
    while let Some(upstream) = named(&upstreams, index) {
        changes.mark_unchanged();
        let pause = match (upstreams.has_answers(&upstream), asked_at) {
            (true, _) => upstream.config.resolve.get(),
            (false, Some(_)) => RETRY_PAUSE,
            (false, None) => Duration::ZERO,
        };
        tokio::select! {
            () = tokio::time::sleep_until(*asked_at.get_or_insert_with(Instant::now) + pause) => {
                asked_at = Some(Instant::now());
                resolve(&upstreams, index, &lookup).await;
            }
            // Its settings may be others now.
            _ = changes.changed() => {}
        }
    }
    index
}

async fn resolve(upstreams: &Upstreams, index: usize, lookup: &Lookup) {
    let Some(upstream) = named(upstreams, index) else { return };
    let names: Vec<(String, u16)> = upstream.names().map(|(host, port)| (host.to_owned(), port)).collect();
    let answers = join_all(names.into_iter().map(|(host, port)| async move {
        let answer = lookup(host.clone(), port).await;
        ((host, port), answer)
    }));
    let mut resolved = ResolvedNames::new();
    for ((host, port), answer) in answers.await {
        match answer {
            Ok(mut addresses) if !addresses.is_empty() => {
                upstreams.failed_names().remove(&(upstream.name.clone(), host.clone(), port));
                addresses.sort_unstable();
                addresses.dedup();
                resolved.insert((host, port), addresses);
            }
            Ok(_) => not_resolved(upstreams, &upstream, &host, port, "the name has no address".to_owned()),
            Err(error) => not_resolved(upstreams, &upstream, &host, port, error.to_string()),
        }
    }
    upstreams.set_resolved(index, resolved);
}

/// Records a failed lookup. A name without an address is asked for each second; its failure is logged once per `resolve`.
fn not_resolved(upstreams: &Upstreams, upstream: &Upstream, host: &str, port: u16, why: String) {
    let has_addresses = upstreams.names().contains_key(&(host.to_owned(), port));
    let (now, key) = (Instant::now(), (upstream.name.clone(), host.to_owned(), port));
    let mut failed = upstreams.failed_names();
    let last_logged = failed.get(&key).map(|last| last.logged);
    let is_due = has_addresses || last_logged.is_none_or(|last| now - last >= upstream.config.resolve.get());
    if is_due {
        let meanwhile = if has_addresses { "its last addresses stay in use" } else { "it has no address yet" };
        tracing::warn!(
            target: "deskgate::upstream",
            { upstream.name = &*upstream.name, host = host, error = why },
            "name not resolved; {meanwhile}"
        );
    }
    let logged = last_logged.filter(|_| !is_due).unwrap_or(now);
    failed.insert(key, FailedLookup { at: upstreams.clock().now(), why, logged });
}

/// The names that do not resolve at the moment, for a check of the configuration; it takes no longer than a start waits.
pub(crate) fn unresolvable(config: &BTreeMap<String, UpstreamConfig>) -> Vec<String> {
    let names = config.iter().flat_map(|(upstream, settings)| {
        settings.addresses.iter().filter_map(move |entry| match &entry.address {
            UpstreamAddress::Name { host, port } => Some((upstream, host.clone(), *port)),
            UpstreamAddress::Socket(_) | UpstreamAddress::Unix(_) => None,
        })
    });
    let asked = names.map(|(upstream, host, port)| {
        let (sender, receiver) = mpsc::channel();
        let asking = host.clone();
        let lookup = move || drop(sender.send(look_up(&asking, port)));
        let spawned = std::thread::Builder::new().name("dns".to_owned()).spawn(lookup);
        (upstream, host, spawned.map(|_| receiver))
    });
    let asked: Vec<_> = asked.collect();
    let deadline = std::time::Instant::now() + START_TIMEOUT;
    let failed = asked.into_iter().filter_map(|(upstream, host, answer)| {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let why = match answer.map(|answer| answer.recv_timeout(left)) {
            Ok(Ok(Ok(addresses))) if !addresses.is_empty() => return None,
            Ok(Ok(Ok(_))) => "the name has no address".to_owned(),
            Ok(Ok(Err(error))) | Err(error) => error.to_string(),
            Ok(Err(_)) => format!("no answer within {} s", START_TIMEOUT.as_secs()),
        };
        Some(format!("upstreams.{upstream}: {host} does not resolve: {why}"))
    });
    failed.collect()
}

/// Asks the system's resolver and waits for its answer.
fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    (host, port).to_socket_addrs().map(Iterator::collect)
}

/// The system's resolver, in a thread of its own for each lookup: it may hang for as long as it likes, and neither requests
/// nor the end of the process wait for it.
fn system_lookup() -> Lookup {
    Arc::new(|host, port| {
        async move {
            let (sender, receiver) = oneshot::channel();
            let lookup = move || drop(sender.send(look_up(&host, port)));
            std::thread::Builder::new().name("dns".to_owned()).spawn(lookup)?;
            receiver.await.map_err(io::Error::other)?
        }
        .boxed()
    })
}

#[cfg(test)]
mod tests;

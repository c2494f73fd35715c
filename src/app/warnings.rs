//! Warns about settings that are valid and leave the gateway weaker than it looks. Logged at start and at every reload, and
//! printed by `deskgate check`.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use ipnet::IpNet;

use crate::config::{BindProof, ClientAddress, Config, FlowCookie, QrConfirm, UpstreamTlsConfig};
use crate::directory::DurabilityRisk;
use crate::domain::postgres_url::SslMode;
use crate::rules::condition::Condition;
use crate::rules::{CaseGap, Rule, RuleSet};
use crate::store::DurabilityGap;

/// How many rules a warning names; the others are counted.
const MOST_NAMES: usize = 3;

/// One message per warning.
pub(super) fn of(config: &Config, rules: &RuleSet) -> Vec<String> {
    let mut warnings = unsafe_settings(config);
    warnings.extend(readable_secrets(config));
    warnings.extend(unverified_server(config));
    warnings.extend(unverified_upstreams(config));
    warnings.extend(private_store(config));
    warnings.extend(wide_proxies(config));
    warnings.extend(forgeable_addresses(config, rules));
    warnings.extend(anonymous_shadow(rules));
    warnings.extend(undeclared_path_cases(rules));
    warnings
}

/// What the servers of a shared store would lose. Read at the start.
pub(super) fn of_store(gaps: &[DurabilityGap]) -> Vec<String> {
    gaps.iter().map(|gap| format!("store.url: {}", would_lose(gap))).collect()
}

fn would_lose(gap: &DurabilityGap) -> String {
    let text = match gap {
        DurabilityGap::NothingOnDisk => {
            "the Redis server keeps nothing on disk: a restart signs everyone out and forgets every logout; set appendonly yes"
        }
        DurabilityGap::SnapshotsOnly => {
            "the Redis server writes only snapshots: a crash loses all changes since the last one, logouts among them; set \
             appendonly yes"
        }
        DurabilityGap::SyncEverySecond => {
            "the Redis server syncs its disk once a second (appendfsync everysec): a crash of its machine loses up to a second \
             of changes, logouts among them; set store.confirm = \"fsync\", or appendfsync always"
        }
        DurabilityGap::SyncBySystem => {
            "the Redis server leaves syncing to its system (appendfsync no): a crash of its machine loses changes, logouts among \
             them; set appendfsync everysec or always"
        }
        DurabilityGap::Eviction(policy) => {
            return format!(
                "the Redis server removes records when its memory is full (maxmemory-policy {policy}), and a denial that is \
                 removed is a logout undone; set noeviction"
            );
        }
        DurabilityGap::NoReplica => {
            "a Redis server has no replica: if it is lost, everyone is signed out and every logout is forgotten"
        }
        DurabilityGap::WritesWithoutReplica => {
            "a Redis primary that is cut off from its replicas goes on accepting changes, which a failover discards; set \
             min-replicas-to-write 1"
        }
        DurabilityGap::Unconfirmed => {
            "store.confirm = \"none\": a failover may undo an answered change until a gateway that received it writes it again; \
             set \"replica\""
        }
    };
    text.to_owned()
}

/// Settings that are convenient and unsafe. Development mode is one itself, and has no use for the others.
fn unsafe_settings(config: &Config) -> Vec<String> {
    if config.server.development {
        let why =
            "development mode (server.development = true): /api/dev/login issues tokens to every user of this machine";
        return vec![why.to_owned()];
    }
    let settings = [
        (
            config.bind.proof == BindProof::None,
            "bind.proof = \"none\": anyone who knows an employee ID can sign in as that employee; set \"platform\"",
        ),
        (
            config.qr.confirm == QrConfirm::Auto,
            "qr.confirm = \"auto\": anyone who gets an employee to scan a QR code is signed in as that employee; set \"tap\"",
        ),
        (
            config.oauth2.require_flow_cookie == FlowCookie::Optional,
            "oauth2.require_flow_cookie = false: an attacker's link can sign an employee in to the attacker's account (login \
             CSRF); set true",
        ),
    ];
    settings.into_iter().filter(|(is_set, _)| *is_set).map(|(_, why)| why.to_owned()).collect()
}

/// Files with secrets and keys that others than their owner can read. A missing file is an error elsewhere.
fn readable_secrets(config: &Config) -> Vec<String> {
    let readable = config.secret_files().into_iter().filter_map(|(key, file)| {
        let metadata = std::fs::metadata(file).ok()?;
        let mode = metadata.permissions().mode() & 0o777;
        let user = nix::unistd::geteuid().as_raw();
        let (whom, others) = match mode {
            _ if mode & 0o007 != 0 => ("every user of this machine", "o"),
            _ if mode & 0o070 != 0 && !is_group_meant(metadata.uid(), metadata.gid(), user) => {
                ("the file's group", "g")
            }
            _ => return None,
        };
        let file = file.display();
        Some(format!("{key}: {whom} can use {file} (mode {mode:04o}); run `chmod {others}= {file}`"))
    });
    readable.collect()
}

/// Whether the group is how the gateway gets at a file: it belongs to another user, or root has given it to a service's group.
fn is_group_meant(owner: u32, group: u32, user: u32) -> bool {
    owner != user || (owner == 0 && group != 0)
}

/// A directory server on another machine that need not prove who it is.
fn unverified_server(config: &Config) -> Option<String> {
    let server = config.directory.server().filter(|server| !server.host.is_local())?;
    let (mode, why) = match server.ssl_mode {
        SslMode::VerifyFull => return None,
        SslMode::VerifyCa => ("verify-ca", "every server with a certificate of the same authority"),
        SslMode::Require => ("require", "an impostor at its address"),
        SslMode::Disable => ("disable", "everyone on the way to the server"),
    };
    Some(format!(
        "directory.url: with sslmode={mode}, {why} can read and change the directory; use sslmode=verify-full"
    ))
}

fn unverified_upstreams(config: &Config) -> Vec<String> {
    let is_unverified = |tls: &UpstreamTlsConfig| !tls.verify;
    let unverified = config.upstreams.iter().filter(|(_, upstream)| upstream.tls.as_ref().is_some_and(is_unverified));
    let warning = |name| {
        format!(
            "upstreams.{name}.tls.verify = false: anyone who can intercept the connection can read and change all requests; set \
             ca_file or server_name instead"
        )
    };
    unverified.map(|(name, _)| warning(name)).collect()
}

/// Sessions of one gateway beside a directory that several could use.
fn private_store(config: &Config) -> Option<String> {
    let is_mixed = config.directory.is_shared() && !config.store.is_shared();
    is_mixed.then(|| {
        "store.url = \"embedded\" beside a shared directory: sessions belong to this gateway alone, and another one would not \
         know of its logouts; run one gateway, or set a shared store.url"
            .to_owned()
    })
}

/// The warning about a setting of the directory's server.
pub(super) fn of_durability(risk: DurabilityRisk) -> &'static str {
    match risk {
        DurabilityRisk::AsynchronousCommit => {
            "the directory's PostgreSQL server has synchronous_commit = off: a crash loses the latest sign-in records, role and \
             password changes that were answered; set it on"
        }
        DurabilityRisk::NoSync => {
            "the directory's PostgreSQL server has fsync = off: a power failure can destroy the directory; set it on"
        }
        DurabilityRisk::TornPages => {
            "the directory's PostgreSQL server has full_page_writes = off: a power failure can destroy the directory; set it on, \
             unless its file system writes whole pages"
        }
    }
}

/// Trusted networks that are so wide that clients are among them.
fn wide_proxies(config: &Config) -> impl Iterator<Item = String> {
    config.server.trusted_proxies.iter().filter(|network| is_wide(network)).map(|network| {
        format!(
            "server.trusted_proxies: {network} is wider than a site, and every client in it can choose its address with \
             X-Forwarded-For; list only the addresses of your load balancers"
        )
    })
}

/// Whether a network covers more than a site. Private networks do not, however large they are: of IPv4 none is larger than
/// 10.0.0.0/8, of IPv6 they are the unique local and the link-local addresses.
fn is_wide(network: &IpNet) -> bool {
    match network {
        IpNet::V4(network) => network.prefix_len() < 8,
        IpNet::V6(network) => {
            let (first, length) = (network.network().segments()[0], network.prefix_len());
            let is_private = (length >= 7 && first & 0xfe00 == 0xfc00) || (length >= 10 && first & 0xffc0 == 0xfe80);
            length < 16 && !is_private
        }
    }
}

/// Rules that depend on an address which clients can choose, if the outermost proxy appends to their `X-Forwarded-For`.
fn forgeable_addresses(config: &Config, rules: &RuleSet) -> Option<String> {
    let server = &config.server;
    if server.client_address != ClientAddress::First || server.trusted_proxies.is_empty() {
        return None;
    }
    let reads_address =
        |rule: &Rule| !rule.networks.is_empty() || rule.when.as_ref().is_some_and(Condition::reads_address);
    let concerned = named(rules.all().iter().map(|rule| &**rule).filter(|rule| reads_address(rule)))?;
    Some(format!(
        "server.client_address = \"first\": a client behind a proxy that appends to X-Forwarded-For can choose the address \
         that `networks` and `when` check in {concerned}; set \"rightmost\""
    ))
}

/// Rules that need a token and let requests without one through.
fn anonymous_shadow(rules: &RuleSet) -> Option<String> {
    let concerned = named(rules.all().iter().map(|rule| &**rule).filter(|rule| rule.shadow_anonymous))?;
    Some(format!("shadow_anonymous = true: requests without a valid token reach the upstream through {concerned}"))
}

/// One warning per upstream whose rules a client could bypass by writing a path in capitals, if the service ignores case.
fn undeclared_path_cases(rules: &RuleSet) -> Vec<String> {
    let mut upstreams: BTreeMap<&str, Vec<CaseGap<'_>>> = BTreeMap::new();
    for gap in rules.case_gaps() {
        let gaps = upstreams.entry(&*gap.literal.upstream.name).or_default();
        if gaps.iter().all(|known| known.literal.name != gap.literal.name) {
            gaps.push(gap);
        }
    }
    let warning = |(upstream, gaps): (&str, Vec<CaseGap<'_>>)| {
        let concerned = named(gaps.iter().map(|gap| gap.literal))?;
        let CaseGap { literal, other } = gaps.first()?;
        Some(format!(
            "upstreams.{upstream}.path_case is not set: if the service ignores case, paths in capitals bypass {concerned}: \
             \"{}\" then matches rule `{}` ({}); set \"insensitive\", or \"sensitive\" if the service does not",
            literal.path, other.name, other.place
        ))
    };
    upstreams.into_iter().filter_map(warning).collect()
}

/// The first rules by name and place, and the number of the others; `None` without any.
fn named<'a>(rules: impl Iterator<Item = &'a Rule>) -> Option<String> {
    let names: Vec<String> = rules.map(|rule| format!("`{}` ({})", rule.name, rule.place)).collect();
    let listed = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        1 => Some(format!("rule {listed}")),
        count if count <= MOST_NAMES => Some(format!("rules {listed}")),
        count => Some(format!("rules {listed} and {} more", count - MOST_NAMES)),
    }
}

#[cfg(test)]
mod tests {
    use super::is_group_meant;

    #[test]
    fn the_group_of_a_secret_file_is_remarked_on_unless_the_gateway_needs_it() {
        let table = [
            ("our own file", 1000, 1000, 1000, false),
            ("root's own file, checked by root", 0, 0, 0, false),
            ("root:deskgate, checked by root", 0, 999, 0, true),
            ("root:deskgate, read by deskgate", 0, 999, 998, true),
        ];
        for (case, owner, group, user, is_meant) in table {
            assert_eq!(is_group_meant(owner, group, user), is_meant, "{case}");
        }
    }
}

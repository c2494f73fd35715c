//! What differs between the configuration in force and a new one, and what of it a reload can apply. Applying it is left to
//! `app::reload`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Config, LimitsConfig, ServerConfig};

/// The keys, or sections, that a reload applies; all others take a restart. Must agree with [`Config::reloaded`].
const RELOADED: &[&str] = &[
    "upstreams",
    "rules",
    "server.tls",
    "server.certificates",
    "server.drain",
    "server.drain_delay",
    "server.upgrade_drain",
    "limits.headers",
    "limits.target_bytes",
    "limits.body_bytes",
    "limits.head_deadline",
    "limits.body_deadline",
    "limits.body_rate",
    "limits.body_grace",
    "limits.upload_deadline",
    "limits.stalled",
    "limits.connections",
    "limits.connections_per_address",
    "limits.memory",
];

/// The keys that differ between two configurations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigChanges {
    /// What a reload applies.
    pub applied: Vec<String>,
    /// What takes effect after a restart.
    pub pending: Vec<String>,
}

impl Config {
    /// This configuration with what a reload can change taken from a new one, and the keys in which the two differ.
    pub fn reloaded(&self, new: Config) -> (Config, ConfigChanges) {
        let (applied, pending) = self.differences(&new).into_iter().partition(|key| is_reloaded(key));
        let Config { upstreams, rules, server, limits, .. } = new;
        let merged = Config {
            upstreams,
            rules,
            server: ServerConfig {
                tls: server.tls,
                certificates: server.certificates,
                drain: server.drain,
                drain_delay: server.drain_delay,
                upgrade_drain: server.upgrade_drain,
                ..self.server.clone()
            },
            // HTTP/2 has its own copies of the first three, and the counters their own of the others.
            limits: LimitsConfig {
                head_bytes: self.limits.head_bytes,
                idle: self.limits.idle,
                streams_per_connection: self.limits.streams_per_connection,
                invalid_tokens: self.limits.invalid_tokens,
                rate_keys: self.limits.rate_keys,
                ..limits
            },
            ..self.clone()
        };
        (merged, ConfigChanges { applied, pending })
    }

    /// The keys whose values differ, in alphabetical order.
    fn differences(&self, other: &Config) -> BTreeSet<String> {
        let (ours, theirs) = (self.values(), other.values());
        let keys = ours.keys().chain(theirs.keys()).filter(|key| ours.get(*key) != theirs.get(*key));
        // Their serialized forms show no password.
        let secret = [
            ("platform.secret", self.platform.secret.reveal() != other.platform.secret.reveal()),
            ("store.url", self.store.url != other.store.url),
            ("directory.url", self.directory.url != other.directory.url),
        ];
        let secret = secret.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned());
        keys.cloned().chain(secret).collect()
    }

    /// Every value by its key.
    fn values(&self) -> BTreeMap<String, Value> {
        let mut values = BTreeMap::new();
        // Serializing cannot fail: all keys are text.
        collect("", serde_json::to_value(self).unwrap_or_default(), &mut values);
        values
    }
}

fn is_reloaded(key: &str) -> bool {
    let is_in = |section: &&str| key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    RELOADED.iter().any(is_in)
}

fn collect(prefix: &str, value: Value, values: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                collect(&key, value, values);
            }
        }
        value => {
            values.insert(prefix.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests;

//! The gateways of the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::AdminError;
use crate::domain::gateway_status::GatewayStatus;
use crate::sessions::SessionCache;

/// A gateway as `deskgate fleet` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRow {
    /// What the gateway announced.
    #[serde(flatten)]
    pub status: GatewayStatus,
    /// What differs from most other gateways: `version`, `rules` or `config`.
    pub differs_in: Vec<String>,
}

/// Lists the gateways of the fleet.
pub(crate) struct FleetAdmin {
    pub(super) sessions: Arc<SessionCache>,
}

impl FleetAdmin {
    /// The running gateways, and what distinguishes them.
    pub(crate) async fn list(&self) -> Result<Vec<GatewayRow>, AdminError> {
        Ok(compare(self.sessions.store().gateways().await?))
    }
}

/// A value that gateways announce.
type AnnouncedValue = fn(&GatewayStatus) -> &str;

/// What all gateways should have in common.
const COMPARED: [(&str, AnnouncedValue); 3] =
    [("version", |status| &status.commit), ("rules", |status| &status.rules), ("config", |status| &status.config)];

fn compare(gateways: Vec<GatewayStatus>) -> Vec<GatewayRow> {
    let usual = COMPARED.map(|(_, value)| most_frequent(gateways.iter().map(value)));
    let differences = |status: &GatewayStatus| {
        let compared = COMPARED.iter().zip(&usual);
        compared
            .filter(|((_, value), usual)| value(status) != *usual)
            .map(|((name, _), _)| (*name).to_owned())
            .collect()
    };
    gateways.iter().map(|status| GatewayRow { status: status.clone(), differs_in: differences(status) }).collect()
}

/// The value that most have; of two that are equally frequent, that of the gateway that was started first.
fn most_frequent<'a>(values: impl Iterator<Item = &'a str> + Clone) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for value in values.clone() {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let mut values = values;
    values.find(|value| counts.get(value) == Some(&most)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::clock::Timestamp;
    use crate::domain::gateway_status::GatewayId;

    fn gateway(id: &str, commit: &str, rules: &str) -> GatewayStatus {
        GatewayStatus {
            id: GatewayId::new(id),
            host: "desk1".to_owned(),
            listen: "127.0.0.1:8080".to_owned(),
            version: "0.1.0".to_owned(),
            commit: commit.to_owned(),
            rules: rules.to_owned(),
            config: "c".to_owned(),
            sockets: 0,
            feed_lag_ms: Some(3),
            started_at: Timestamp::from_seconds(0),
            announced_at: Timestamp::from_seconds(0),
        }
    }

    #[test]
    fn the_gateway_whose_rules_or_version_differ_is_named() {
        let rows = compare(vec![gateway("a", "v1", "r1"), gateway("b", "v2", "r1"), gateway("c", "v1", "r2")]);
        let differences: Vec<Vec<String>> = rows.into_iter().map(|row| row.differs_in).collect();
        assert_eq!(differences, [vec![], vec!["version".to_owned()], vec!["rules".to_owned()]]);
    }

    #[test]
    fn of_two_gateways_the_later_one_differs() {
        let rows = compare(vec![gateway("a", "v1", "r1"), gateway("b", "v2", "r2")]);
        assert!(rows[0].differs_in.is_empty());
        assert_eq!(rows[1].differs_in, ["version", "rules"]);
    }
}

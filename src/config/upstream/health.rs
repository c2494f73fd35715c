//! `health` and `ejection`: when an address of an upstream gets no requests.

use serde::{Deserialize, Serialize};

use crate::config::{Faults, HumanDuration};

/// Active checks of an upstream's addresses.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthConfig {
    /// The path of the check. If empty, an address that accepts a connection is healthy.
    pub path: String,
    /// The pause between two checks of an address.
    pub every: HumanDuration,
    /// How long a check may take.
    pub timeout: HumanDuration,
    /// The statuses of a healthy address.
    pub expect: Vec<u16>,
    /// How many failed checks in a row make an address unhealthy.
    pub unhealthy_after: u32,
    /// How many passed checks in a row make it healthy again.
    pub healthy_after: u32,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            path: String::new(),
            every: HumanDuration::seconds(5),
            timeout: HumanDuration::seconds(2),
            expect: vec![200],
            unhealthy_after: 2,
            healthy_after: 2,
        }
    }
}

impl HealthConfig {
    pub(super) fn check(&self, key: &str, faults: &mut Faults) {
        let is_path = self.path.starts_with('/') && self.path.bytes().all(|byte| byte.is_ascii_graphic());
        if !self.path.is_empty() && !is_path {
            faults.add(&format!("{key}.path"), format!("{:?} is not a path, such as \"/health\"", self.path));
        }
        if self.every < HumanDuration::millis(100) {
            faults.add(&format!("{key}.every"), format!("\"{}\" is too short; use at least 100ms", self.every));
        }
        if self.timeout < HumanDuration::millis(10) {
            faults.add(&format!("{key}.timeout"), format!("\"{}\" is too short; use at least 10ms", self.timeout));
        }
        if self.expect.is_empty() || !self.expect.iter().all(|status| (200..600).contains(status)) {
            faults.add(&format!("{key}.expect"), format!("{:?} is not a list of statuses, such as [200]", self.expect));
        }
        for (name, count) in [("unhealthy_after", self.unhealthy_after), ("healthy_after", self.healthy_after)] {
            if count == 0 {
                faults.add(&format!("{key}.{name}"), "0 is too few; use at least 1");
            }
        }
    }
}

/// Passive ejection: an address whose requests fail gets none for a while.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EjectionConfig {
    /// How many failures in a row eject an address; 0 turns ejection off.
    pub failures: u32,
    /// How long the first time. Each ejection that soon follows another takes twice as long.
    #[serde(rename = "for")]
    pub duration: HumanDuration,
    /// The longest time.
    pub longest: HumanDuration,
    /// The most addresses that are ejected at once, in per cent. Rounded down: a single address is never ejected.
    pub most: u32,
}

impl Default for EjectionConfig {
    fn default() -> Self {
        Self { failures: 5, duration: HumanDuration::seconds(10), longest: HumanDuration::seconds(300), most: 50 }
    }
}

impl EjectionConfig {
    pub(super) fn check(&self, key: &str, faults: &mut Faults) {
        if self.longest < self.duration {
            faults.add(&format!("{key}.longest"), format!("\"{}\" is shorter than `for`", self.longest));
        }
        if self.most > 100 {
            faults.add(&format!("{key}.most"), format!("{} is more than 100 per cent", self.most));
        }
    }
}

//! Setting switches from JSON: a merge patch (RFC 7396), where `null` sets back to the default. Either
//! every value is taken or none, and every fault is told at once.

use serde::Serialize;
use serde_json::{Map, Value};

use super::super::members::{App, members};
use super::super::path;
use super::{ABOUT, ANY, About, Switches};

/// A value that cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The switch, by the name that was given.
    pub switch: String,
    /// What is wrong.
    pub why: String,
    /// What is allowed.
    pub allowed: String,
}

impl Switches {
    /// These switches after a change.
    pub fn merged(&self, patch: &Map<String, Value>) -> Result<Switches, Vec<Fault>> {
        let mut switches = self.clone();
        let mut faults = Vec::new();
        for (name, change) in patch {
            match switches.with_one(name, change) {
                Ok(changed) => switches = changed,
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(switches) } else { Err(faults) }
    }

    fn with_one(&self, name: &str, change: &Value) -> Result<Switches, Fault> {
        let Some(about) = About::find(name) else {
            let names: Vec<&str> = ABOUT.iter().map(|about| about.name).collect();
            let why = "there is no such switch".to_owned();
            return Err(Fault { switch: name.to_owned(), why, allowed: names.join(", ") });
        };
        let fault = |why: String| Fault { switch: name.to_owned(), why, allowed: about.allowed.to_owned() };
        let mut written = serde_json::to_value(self).map_err(|error| fault(error.to_string()))?;
        merge(&mut written, &Value::Object([(name.to_owned(), change.clone())].into_iter().collect()));
        let changed: Switches = serde_json::from_value(written).map_err(|error| fault(error.to_string()))?;
        match changed.misfit() {
            Some(why) => Err(fault(why)),
            None => Ok(changed),
        }
    }

    /// The first name that names nothing, or the first domain that is none.
    fn misfit(&self) -> Option<String> {
        let api = |key: &&String| *key != ANY && !path::API.contains(&key.as_str());
        let any_path = |key: &&String| api(key) && !path::PAGES.contains(&key.as_str());
        let app = |key: &&String| App::find(key).is_none();
        let member = |key: &&String| !members().iter().any(|member| member.userid == **key);
        let unknown = self.busy.keys().find(api);
        let unknown = unknown.or_else(|| self.bad_gateway.keys().chain(self.slow.keys()).find(any_path));
        let unknown = unknown.or_else(|| self.trusted_domains.keys().chain(self.visible_range.keys()).find(app));
        let unknown = unknown.or_else(|| self.visible_range.values().flatten().chain(self.members.keys()).find(member));
        let not_a_domain = |text: &&String| text.is_empty() || text.contains(['/', '*', ' ']);
        let odd = || self.trusted_domains.values().flatten().find(not_a_domain);
        unknown
            .map(|name| format!("{name} is not known"))
            .or_else(|| odd().map(|text| format!("\"{text}\" is not a host, with or without a port")))
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

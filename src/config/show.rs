//! The effective configuration for people: every key with its value, secrets as `***`, and its default where that differs.

use std::path::Path;

use serde_json::{Map, Value};

use super::redact::{HIDDEN, redacted_value};
use super::{Config, UpstreamConfig};

/// A section of the effective configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownSection {
    /// The section's name, such as `server` or `upstreams.helpdesk`.
    pub name: String,
    /// Its keys.
    pub settings: Vec<ShownSetting>,
}

/// One key of the effective configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownSetting {
    /// The key within its section.
    pub key: String,
    /// Its value, with `***` in place of secrets.
    pub value: Value,
    /// Its default, if the value differs from it; `Null` if there is none.
    pub default: Option<Value>,
}

impl Config {
    /// Every key with its value. `folder` is where relative paths of the configuration start.
    pub fn shown(&self, folder: &Path) -> Vec<ShownSection> {
        let mut defaults = Config::default();
        defaults.resolve_paths(folder, |_| false);
        let (values, defaults) = (self.with_hidden_secret(), defaults.with_hidden_secret());
        let mut sections = Vec::new();
        for (name, value) in values {
            let Value::Object(keys) = value else { continue };
            if name == "upstreams" {
                let default = object(&UpstreamConfig::default());
                let one = |(upstream, value): (String, Value)| {
                    let keys = if let Value::Object(keys) = value { keys } else { Map::new() };
                    section(format!("upstreams.{}", key_name(&upstream)), keys, &default)
                };
                sections.extend(keys.into_iter().map(one));
            } else {
                let default = defaults.get(&name).and_then(Value::as_object).cloned().unwrap_or_default();
                sections.push(section(name, keys, &default));
            }
        }
        sections
    }

    fn with_hidden_secret(&self) -> Map<String, Value> {
        let mut sections = object(self);
        let secret = if self.platform.secret.reveal().is_empty() { "" } else { HIDDEN };
        if let Some(platform) = sections.get_mut("platform").and_then(Value::as_object_mut) {
            platform.insert("secret".to_owned(), secret.into());
        }
        sections
    }
}

/// Serializing cannot fail: all keys are text.
fn object(value: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    }
}

fn section(name: String, keys: Map<String, Value>, defaults: &Map<String, Value>) -> ShownSection {
    let shown = |(key, value): (String, Value)| {
        let default = defaults.get(&key).unwrap_or(&Value::Null);
        // What is not set has no value in TOML.
        let is_shown = !value.is_null() || !default.is_null();
        let differs = *default != value;
        let default = differs.then(|| redacted_value(default.clone()));
        is_shown.then(|| ShownSetting { default, key, value: redacted_value(value) })
    };
    ShownSection { name, settings: keys.into_iter().filter_map(shown).collect() }
}

/// A value in TOML, on one line.
pub fn inline_toml(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        // TOML's basic strings have JSON's escapes, and escape one character more.
        Value::String(_) => value.to_string().replace('\u{7f}', "\\u007f"),
        Value::Array(values) => format!("[{}]", values.iter().map(inline_toml).collect::<Vec<_>>().join(", ")),
        Value::Object(keys) => {
            let entries = keys.iter().filter(|(_, value)| !value.is_null());
            let entries: Vec<String> =
                entries.map(|(key, value)| format!("{} = {}", key_name(key), inline_toml(value))).collect();
            if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
        }
    }
}

/// A key in TOML, quoted where that is needed.
fn key_name(key: &str) -> String {
    let is_bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare { key.to_owned() } else { inline_toml(&key.into()) }
}

#[cfg(test)]
mod tests;

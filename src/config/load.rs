//! From text to [`Config`]. Each key is read by itself first, so that one bad value does not hide the next.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, Fault, Faults};

/// One `--set section.key=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    path: Vec<String>,
    value: String,
}

impl std::str::FromStr for Override {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("expected section.key=value")?;
        let path: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err("expected section.key=value".to_owned());
        }
        Ok(Self { path, value: value.trim().to_owned() })
    }
}

/// Reads a file, or the defaults without one, and applies the overrides.
pub fn load(file: Option<&Path>, overrides: &[Override]) -> Result<Config, Vec<Fault>> {
    let Some(path) = file else {
        return load_text("defaults", "", overrides);
    };
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => load_text(&name, &text, overrides),
        Err(error) => {
            let why = format!("cannot be read: {error}");
            Err(vec![Fault { origin: name, line: None, key: String::new(), why }])
        }
    }
}

/// The same from text; `origin` names it in faults.
pub fn load_text(origin: &str, text: &str, overrides: &[Override]) -> Result<Config, Vec<Fault>> {
    let mut faults = Faults::of(origin);
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        faults.add_at(line, error.message());
    }
    if !faults.is_empty() {
        return Err(faults.into_found());
    }
    let mut root = root.into_inner();
    remember_lines("", &root, text, &mut faults);
    for change in overrides {
        apply(&mut root, change, &mut faults);
    }
    let config = read(root, &mut faults);
    if faults.is_empty() {
        config.check(&mut faults);
    }
    if faults.is_empty() { Ok(config) } else { Err(faults.into_found()) }
}

fn read(mut root: DeTable<'_>, faults: &mut Faults) -> Config {
    let config = Config {
        server: section(&mut root, "server", faults),
        limits: section(&mut root, "limits", faults),
        platform: section(&mut root, "platform", faults),
        clients: section(&mut root, "clients", faults),
        token: section(&mut root, "token", faults),
        ticket: section(&mut root, "ticket", faults),
        qr: section(&mut root, "qr", faults),
        oauth2: section(&mut root, "oauth2", faults),
        bind: section(&mut root, "bind", faults),
        agents: section(&mut root, "agents", faults),
        otp: section(&mut root, "otp", faults),
        websocket: section(&mut root, "websocket", faults),
        store: section(&mut root, "store", faults),
        directory: section(&mut root, "directory", faults),
        rules: section(&mut root, "rules", faults),
        log: section(&mut root, "log", faults),
        upstreams: each_section(&mut root, "upstreams", faults),
    };
    for key in root.keys() {
        faults.add(key.get_ref(), "there is no such section");
    }
    config
}

/// Reads one section key by key, so that each fault is found by itself.
fn section<S: DeserializeOwned + Default>(root: &mut DeTable<'_>, name: &str, faults: &mut Faults) -> S {
    match root.remove(name) {
        None => S::default(),
        Some(value) => read_table(value, name, faults),
    }
}

/// Reads a section of named sections.
fn each_section<S: DeserializeOwned + Default>(
    root: &mut DeTable<'_>,
    name: &str,
    faults: &mut Faults,
) -> BTreeMap<String, S> {
    let Some(value) = root.remove(name) else {
        return BTreeMap::new();
    };
    let DeValue::Table(table) = value.into_inner() else {
        faults.add(name, "must be a table of tables");
        return BTreeMap::new();
    };
    table
        .into_iter()
        .map(|(key, value)| {
            let key = key.into_inner().into_owned();
            let read = read_table(value, &format!("{name}.{key}"), faults);
            (key, read)
        })
        .collect()
}

fn read_table<S: DeserializeOwned + Default>(value: Spanned<DeValue<'_>>, name: &str, faults: &mut Faults) -> S {
    let DeValue::Table(table) = value.into_inner() else {
        faults.add(name, "must be a table");
        return S::default();
    };
    let mut sound = DeTable::new();
    for (key, value) in table {
        let mut alone = DeTable::new();
        alone.insert(key.clone(), value.clone());
        match S::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, alone))) {
            Ok(_) => {
                sound.insert(key, value);
            }
            Err(error) => faults.add(&format!("{name}.{}", key.get_ref()), error.message()),
        }
    }
    S::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, sound))).unwrap_or_else(|error| {
        faults.add(name, error.message());
        S::default()
    })
}

fn apply<'a>(root: &mut DeTable<'a>, change: &'a Override, faults: &mut Faults) {
    faults.was_set(&change.path.join("."));
    // A value that is not TOML by itself (an address, a word) is a string.
    let value = match DeValue::parse(&change.value) {
        Ok(value) => value.into_inner(),
        Err(_) => DeValue::String(change.value.as_str().into()),
    };
    let Some((last, sections)) = change.path.split_last() else { return };
    let mut table = root;
    for name in sections {
        let key = Spanned::new(0..0, name.as_str().into());
        let entry = table.entry(key).or_insert_with(|| Spanned::new(0..0, DeValue::Table(DeTable::new())));
        match entry.get_mut() {
            DeValue::Table(inner) => table = inner,
            _ => {
                faults.add(&change.path.join("."), format!("`{name}` is not a section"));
                return;
            }
        }
    }
    table.insert(Spanned::new(0..0, last.as_str().into()), Spanned::new(0..0, value));
}

fn remember_lines(prefix: &str, table: &DeTable<'_>, text: &str, faults: &mut Faults) {
    for (key, value) in table.iter() {
        let path = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        faults.stands(&path, line_of(text, key.span().start));
        if let DeValue::Table(inner) = value.get_ref() {
            remember_lines(&path, inner, text, faults);
        }
    }
}

/// The line, counted from one, of a place in the text.
pub(crate) fn line_of(text: &str, place: usize) -> usize {
    text.as_bytes().iter().take(place).filter(|byte| **byte == b'\n').count() + 1
}

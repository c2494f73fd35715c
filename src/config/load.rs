//! Reads TOML text and `--set` overrides into a [`Config`]. Each key is read by itself first, so that one bad value does
//! not hide the next.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::{Config, ConfigFault, Faults, KeyPlaces};

/// One `--set section.key=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    path: Vec<String>,
    value: String,
}

impl std::str::FromStr for Override {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Without the value, which may be a secret.
        let malformed = || match text.find(['=', ':']) {
            Some(end) => format!("{:?} is not of the form section.key=value", format!("{}…", &text[..=end])),
            None => "the argument is not of the form section.key=value".to_owned(),
        };
        let (key, value) = text.split_once('=').ok_or_else(malformed)?;
        let path: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(malformed());
        }
        Ok(Self { path, value: value.trim().to_owned() })
    }
}

/// A configuration that was read as far as possible, with its faults.
#[derive(Debug)]
pub struct ReadConfig {
    /// `None` if the file cannot be read or is not TOML. A key with a fault has its default.
    pub config: Option<Config>,
    /// Empty if the configuration is valid.
    pub faults: Vec<ConfigFault>,
    /// Where its keys were given.
    pub places: KeyPlaces,
}

impl ReadConfig {
    fn into_valid(self) -> Result<Config, Vec<ConfigFault>> {
        match self {
            Self { config: Some(config), faults, .. } if faults.is_empty() => Ok(config),
            Self { faults, .. } => Err(faults),
        }
    }
}

/// Where a configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct ConfigSource {
    /// The file; defaults apply without one.
    pub file: Option<PathBuf>,
    /// What replaces keys of the file.
    pub overrides: Vec<Override>,
}

impl ConfigSource {
    /// Loads the configuration.
    pub fn load(&self) -> Result<Config, Vec<ConfigFault>> {
        load(self.file.as_deref(), &self.overrides)
    }

    /// Puts the place of a key before a message that begins with the key.
    pub fn locate(&self, message: &str) -> String {
        read(self.file.as_deref(), &self.overrides).places.locate(message)
    }
}

/// Loads a file, or the defaults without one, and applies the overrides.
pub fn load(file: Option<&Path>, overrides: &[Override]) -> Result<Config, Vec<ConfigFault>> {
    read(file, overrides).into_valid()
}

/// Loads a text; `origin` names it in faults. Relative paths start at the working directory.
pub fn load_text(origin: &str, text: &str, overrides: &[Override]) -> Result<Config, Vec<ConfigFault>> {
    read_text(origin, Path::new(""), text, overrides).into_valid()
}

/// Reads a file and returns its faults beside the configuration, for a check that goes on after them.
pub fn read(file: Option<&Path>, overrides: &[Override]) -> ReadConfig {
    let Some(path) = file else {
        return read_text("defaults", Path::new(""), "", overrides);
    };
    let origin = path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new(""));
    match std::fs::read_to_string(path) {
        Ok(text) => read_text(&origin, folder, &text, overrides),
        Err(error) => {
            let why = format!("cannot be read: {error}");
            let faults = vec![ConfigFault { origin, line: None, key: String::new(), why }];
            ReadConfig { config: None, faults, places: KeyPlaces::default() }
        }
    }
}

/// `folder` is where relative paths in the text start.
pub(super) fn read_text(origin: &str, folder: &Path, text: &str, overrides: &[Override]) -> ReadConfig {
    let mut reader = ConfigReader { faults: Faults::new(origin), overridden: HashMap::new() };
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        reader.faults.add_at_line(line, error.message());
    }
    if !reader.faults.is_empty() {
        let (faults, places) = reader.faults.into_sorted();
        return ReadConfig { config: None, faults, places };
    }
    let mut root = root.into_inner();
    record_lines("", &root, text, &mut reader.faults);
    for change in overrides {
        reader.apply(&mut root, change);
    }
    let mut config = reader.config(root);
    config.resolve_paths(folder, |key| reader.is_overridden(key));
    config.check(&mut reader.faults);
    let (faults, places) = reader.faults.into_sorted();
    ReadConfig { config: Some(config), faults, places }
}

struct ConfigReader<'a> {
    faults: Faults,
    /// The text that `--set` gave for a key.
    overridden: HashMap<String, &'a str>,
}

impl<'a> ConfigReader<'a> {
    fn config(&mut self, mut root: DeTable<'a>) -> Config {
        let config = Config {
            server: self.section(&mut root, "server"),
            limits: self.section(&mut root, "limits"),
            platform: self.section(&mut root, "platform"),
            clients: self.section(&mut root, "clients"),
            token: self.section(&mut root, "token"),
            ticket: self.section(&mut root, "ticket"),
            qr: self.section(&mut root, "qr"),
            oauth2: self.section(&mut root, "oauth2"),
            bind: self.section(&mut root, "bind"),
            agents: self.section(&mut root, "agents"),
            otp: self.section(&mut root, "otp"),
            cors: self.section(&mut root, "cors"),
            websocket: self.section(&mut root, "websocket"),
            store: self.section(&mut root, "store"),
            directory: self.section(&mut root, "directory"),
            rules: self.section(&mut root, "rules"),
            rates: self.section(&mut root, "rates"),
            log: self.section(&mut root, "log"),
            audit: self.section(&mut root, "audit"),
            traces: self.section(&mut root, "traces"),
            upstreams: self.named_sections(&mut root, "upstreams"),
        };
        for key in root.keys() {
            self.faults.add(key.get_ref(), "unknown section");
        }
        config
    }

    fn section<S: DeserializeOwned + Default>(&mut self, root: &mut DeTable<'a>, name: &str) -> S {
        match root.remove(name) {
            None => S::default(),
            Some(value) => self.table(value, name),
        }
    }

    /// Reads `[name.KEY]` sections.
    fn named_sections<S: DeserializeOwned + Default>(
        &mut self,
        root: &mut DeTable<'a>,
        name: &str,
    ) -> BTreeMap<String, S> {
        let Some(value) = root.remove(name) else {
            return BTreeMap::new();
        };
        let DeValue::Table(table) = value.into_inner() else {
            self.faults.add(name, format!("must consist of sections [{name}.NAME]"));
            return BTreeMap::new();
        };
        let mut sections = BTreeMap::new();
        for (key, value) in table {
            let key = key.into_inner().into_owned();
            let section = self.table(value, &format!("{name}.{key}"));
            sections.insert(key, section);
        }
        sections
    }

    /// Reads one section key by key and leaves keys with a fault at their default.
    fn table<S: DeserializeOwned + Default>(&mut self, value: Spanned<DeValue<'a>>, name: &str) -> S {
        let DeValue::Table(table) = value.into_inner() else {
            self.faults.add(name, format!("must be a section [{name}]"));
            return S::default();
        };
        let mut valid = DeTable::new();
        for (key, value) in table {
            let path = format!("{name}.{}", key.get_ref());
            let accepted = match self.overridden.get(&path) {
                Some(text) => read_override::<S>(&key, &value, text),
                None => deserialize_key::<S>(&key, &value).map(|()| value),
            };
            match accepted {
                Ok(value) => {
                    valid.insert(key, value);
                }
                Err(error) => self.faults.add(&path, error.message()),
            }
        }
        S::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, valid))).unwrap_or_else(|error| {
            self.faults.add(name, error.message());
            S::default()
        })
    }

    /// Whether `--set` gave the key, or the table that it is in.
    fn is_overridden(&self, key: &str) -> bool {
        let in_table = |table: &str| key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
        self.overridden.contains_key(key) || self.overridden.keys().any(|table| in_table(table))
    }

    /// Puts an override into the tables of the file.
    fn apply(&mut self, root: &mut DeTable<'a>, change: &'a Override) {
        let path = change.path.join(".");
        self.faults.set_overridden(&path);
        // Text that is not a TOML value, such as an address or a word, is a string.
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
                    self.faults.add(&path, format!("{name:?} is not a section"));
                    return;
                }
            }
        }
        table.insert(Spanned::new(0..0, last.as_str().into()), Spanned::new(0..0, value));
        self.overridden.insert(path, &change.value);
    }
}

type TomlKey<'a> = Spanned<std::borrow::Cow<'a, str>>;

/// Checks that a section accepts a key with this value.
fn deserialize_key<S: DeserializeOwned>(
    key: &TomlKey<'_>,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), toml::de::Error> {
    let mut table = DeTable::new();
    table.insert(key.clone(), value.clone());
    S::deserialize(toml::de::Deserializer::from(Spanned::new(0..0, table))).map(|_: S| ())
}

/// Reads a `--set` value. A scalar is also accepted as a string (`platform.agent_id=1000002`) and as the only entry of a
/// list (`server.listen=127.0.0.1:8080`), so that a shell command needs no quotes.
fn read_override<'a, S: DeserializeOwned>(
    key: &TomlKey<'a>,
    value: &Spanned<DeValue<'a>>,
    text: &'a str,
) -> Result<Spanned<DeValue<'a>>, toml::de::Error> {
    let error = match deserialize_key::<S>(key, value) {
        Ok(()) => return Ok(value.clone()),
        Err(error) => error,
    };
    if matches!(value.get_ref(), DeValue::Array(_) | DeValue::Table(_)) {
        return Err(error);
    }
    let text = Spanned::new(0..0, DeValue::String(text.into()));
    if deserialize_key::<S>(key, &list([])).is_err() {
        return deserialize_key::<S>(key, &text).map(|()| text).map_err(|_| error);
    }
    // The key takes a list.
    let entry = list([value.clone()]);
    match deserialize_key::<S>(key, &entry) {
        Ok(()) => Ok(entry),
        Err(_) => {
            let entry = list([text]);
            deserialize_key::<S>(key, &entry).map(|()| entry)
        }
    }
}

fn list<'a, const N: usize>(entries: [Spanned<DeValue<'a>>; N]) -> Spanned<DeValue<'a>> {
    let mut list = DeArray::new();
    for entry in entries {
        list.push(entry);
    }
    Spanned::new(0..0, DeValue::Array(list))
}

fn record_lines(prefix: &str, table: &DeTable<'_>, text: &str, faults: &mut Faults) {
    for (key, value) in table.iter() {
        let path = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        faults.set_line(&path, line_of(text, key.span().start));
        match value.get_ref() {
            DeValue::Table(inner) => record_lines(&path, inner, text, faults),
            DeValue::Array(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    faults.set_line(&path, line_of(text, entry.span().start));
                    if let DeValue::Table(inner) = entry.get_ref() {
                        record_lines(&path, inner, text, faults);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The line of a byte offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

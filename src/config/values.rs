//! Deserializers that quote a bad value and name the expected form, such as `"foo" is not a URL`. For use with
//! `serde(deserialize_with)`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};
use url::Url;

use crate::domain::host::HostEntry;
use crate::domain::secret::Secret;

/// A type of values that are written as strings.
trait TextValue: FromStr {
    /// What a value is and an example of it.
    const FORM: &'static str;
}

impl TextValue for SocketAddr {
    const FORM: &'static str = "an IP address with a port, such as \"127.0.0.1:8080\"";
}

impl TextValue for IpNet {
    const FORM: &'static str = "a network, such as \"10.0.0.0/24\"";
}

impl TextValue for HostEntry {
    const FORM: &'static str = "a host with an optional port, such as \"desk.example.com\"";
}

impl TextValue for Url {
    const FORM: &'static str = "a URL, such as \"https://desk.example.com/\"";
}

fn parse<T: TextValue, E: Error>(text: &str) -> Result<T, E> {
    // `Faults` hides what is secret in the value.
    text.parse().map_err(|_| E::custom(format_args!("{text:?} is not {}", T::FORM)))
}

struct SingleValue<T>(std::marker::PhantomData<T>);

impl<T: TextValue> Visitor<'_> for SingleValue<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::FORM)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        parse(text)
    }
}

struct ValueList<T>(std::marker::PhantomData<T>);

impl<'de, T: TextValue> Visitor<'de> for ValueList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list; each entry is {}", T::FORM)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(entry) = entries.next_element::<toml::Value>()? {
            match entry.as_str() {
                Some(text) => values.push(parse(text)?),
                None => return Err(A::Error::invalid_type(Unexpected::Other(&entry.to_string()), &T::FORM)),
            }
        }
        Ok(values)
    }
}

pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    deserializer.deserialize_str(SingleValue(std::marker::PhantomData))
}

pub(super) fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    deserializer.deserialize_seq(ValueList(std::marker::PhantomData))
}

pub(super) fn some_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<SocketAddr>>, D::Error> {
    addresses(deserializer).map(Some)
}

pub(super) fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<HostEntry>, D::Error> {
    deserializer.deserialize_seq(ValueList(std::marker::PhantomData))
}

pub(super) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    deserializer.deserialize_seq(ValueList(std::marker::PhantomData))
}

pub(super) fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    deserializer.deserialize_str(SingleValue(std::marker::PhantomData))
}

pub(super) fn some_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    url(deserializer).map(Some)
}

pub(super) fn urls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Url>, D::Error> {
    deserializer.deserialize_seq(ValueList(std::marker::PhantomData))
}

/// Reads a secret. The fault of a value that is no string, such as a number without quotes, does not quote it.
pub(super) fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret<String>, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => Ok(Secret::new(text)),
        _ => Err(D::Error::custom("is not a string; put it in quotes")),
    }
}

/// Whether a URL has a user name or a password.
pub(super) fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

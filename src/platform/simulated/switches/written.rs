//! How values are written in JSON where their own form would not do.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{StaleErrcode, Times};

const ALL: &str = "all";

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Times::Next(calls) => serializer.serialize_u64(*calls),
            Times::All => serializer.serialize_str(ALL),
        }
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a number of calls or \"all\"")]
        enum Written {
            Number(u64),
            Word(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(calls) => Ok(Times::Next(calls)),
            Written::Word(word) if word == ALL => Ok(Times::All),
            Written::Word(word) => Err(de::Error::custom(format!("\"{word}\" is neither a number nor \"all\""))),
        }
    }
}

impl TryFrom<i64> for StaleErrcode {
    type Error = String;

    fn try_from(errcode: i64) -> Result<Self, String> {
        match errcode {
            40014 => Ok(StaleErrcode::Invalid),
            42001 => Ok(StaleErrcode::Expired),
            other => Err(format!("{other} is neither 40014 nor 42001")),
        }
    }
}

impl From<StaleErrcode> for i64 {
    fn from(errcode: StaleErrcode) -> i64 {
        match errcode {
            StaleErrcode::Invalid => 40014,
            StaleErrcode::Expired => 42001,
        }
    }
}

/// A duration as whole seconds.
pub mod seconds {
    use std::time::Duration;

    use super::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(span.as_secs())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

/// Durations by path, as whole milliseconds.
pub mod milliseconds_per_path {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::super::PerPath;
    use super::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(spans: &PerPath<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(spans.iter().map(|(path, span)| (path, span.as_millis())))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PerPath<Duration>, D::Error> {
        let written = BTreeMap::<String, u64>::deserialize(deserializer)?;
        Ok(written.into_iter().map(|(path, span)| (path, Duration::from_millis(span))).collect())
    }
}

/// Networks; an address alone is a network of one.
pub mod networks {
    use std::net::IpAddr;

    use ipnet::IpNet;

    use super::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(networks: &[IpNet], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(networks)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
        let written = Vec::<String>::deserialize(deserializer)?;
        let network = |text: &String| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let network = |text: String| {
            network(&text).map_err(|_| de::Error::custom(format!("\"{text}\" is no address or network")))
        };
        written.into_iter().map(network).collect()
    }
}

//! Durations as operators write them: `250ms`, `30s`, `10m`, `8h`, `1d`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration of the configuration, a whole number with a unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(Duration);

impl HumanDuration {
    /// Makes a duration of milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Makes a duration of seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Returns the standard library's type.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Parses what an operator writes; `None` without a number or a known unit.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        // A century. A longer duration is a typing error, and would overflow when it is added to a timestamp.
        const MAX_MILLIS: u64 = 36_525 * 86_400_000;
        number.checked_mul(millis).filter(|millis| *millis <= MAX_MILLIS).map(Self::millis)
    }
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        for (size, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
            if millis.is_multiple_of(size) {
                return write!(f, "{}{unit}", millis / size);
            }
        }
        write!(f, "{millis}ms")
    }
}

impl fmt::Debug for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const FORM: &str = "a duration such as \"250ms\", \"30s\", \"10m\", \"8h\" or \"1d\"";

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

struct DurationVisitor;

impl de::Visitor<'_> for DurationVisitor {
    type Value = HumanDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORM)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<HumanDuration, E> {
        HumanDuration::parse(text).ok_or_else(|| E::custom(format_args!("{text:?} is not {FORM}")))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<HumanDuration, E> {
        if number == 0 {
            return Ok(HumanDuration::millis(0));
        }
        Err(E::custom(format_args!("{number} has no unit; write \"{number}s\" for seconds")))
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

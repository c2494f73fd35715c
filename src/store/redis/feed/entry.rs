//! The entries of the change feed.

use ::redis::{FromRedisValue, Value};

use crate::domain::clock::Timestamp;
use crate::domain::session::{EndCause, Session, SessionId};
use crate::domain::ticket::TicketDigest;
use crate::store::redis::denials::RememberedDenial;
use crate::store::redis::records;

/// The id of an entry: the server's clock in milliseconds, and a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId(u64, u64);

impl EntryId {
    pub(super) const NONE: EntryId = EntryId(0, 0);

    /// When it was appended, by the clock of the server.
    pub(super) fn time(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.0).unwrap_or(i64::MAX))
    }

    fn parse(text: &str) -> Option<Self> {
        let (time, counter) = text.split_once('-')?;
        Some(Self(time.parse().ok()?, counter.parse().ok()?))
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// An entry of a stream.
pub(super) struct FeedEntry {
    pub(super) id: EntryId,
    pub(super) number: u64,
    /// `None`: what it says cannot be read.
    pub(super) change: Option<FeedChange>,
}

/// What an entry announces.
pub(super) enum FeedChange {
    Ended(RememberedDenial),
    Changed(Box<Session>),
    TicketMoved(TicketDigest),
}

impl FromRedisValue for FeedEntry {
    fn from_redis_value(value: Value) -> Result<Self, ::redis::ParsingError> {
        let (id, fields): (String, Vec<Vec<u8>>) = ::redis::from_redis_value(value)?;
        let id = EntryId::parse(&id).ok_or("an entry without an id")?;
        let [_, number, kind, text] = &fields[..] else { return Err("an entry with other fields".into()) };
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        let change = FeedChange::parse(kind, text);
        Ok(Self { id, number: number.ok_or("an entry without a number")?, change })
    }
}

impl FeedChange {
    /// `None`: a kind that a newer version writes, or a record that cannot be read.
    fn parse(kind: &[u8], text: &[u8]) -> Option<Self> {
        match kind {
            b"c" => Some(Self::Changed(Box::new(records::parse_session_text(text).ok()?))),
            b"t" => Some(Self::TicketMoved(TicketDigest::from_stored(String::from_utf8(text.to_vec()).ok()?))),
            b"e" => {
                let mut parts = std::str::from_utf8(text).ok()?.splitn(3, ' ');
                let cause = parts.next()?;
                let cause =
                    EndCause::ALL.into_iter().find(|known| known.as_str() == cause).unwrap_or(EndCause::Operator);
                let until = Timestamp::from_millis(parts.next()?.parse().ok()?);
                Some(Self::Ended(RememberedDenial { id: SessionId::new(parts.next()?), until, cause }))
            }
            _ => None,
        }
    }
}

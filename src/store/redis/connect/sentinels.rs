//! Asks the Sentinels where the primary is.
//!
//! A Sentinel that is cut off from the others goes on naming a primary that they may have replaced. So the answer is what more
//! than half of the Sentinels of `store.url` say: if the primary was replaced, more than half know, or cannot be reached.

use std::collections::HashMap;

use ::redis::{ErrorKind, RedisError};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::{CONNECT_LIMIT, Connector, Credentials, PrimaryAddress, within};
use crate::config::RedisHost;

impl Connector {
    /// Whether Sentinels say where the primary is.
    pub(in crate::store::redis) fn asks_sentinels(&self) -> bool {
        matches!(self.address, PrimaryAddress::Sentinel { .. })
    }

    /// The primary's address by the Sentinels.
    pub(in crate::store::redis) async fn sentinels_primary(&self) -> Result<RedisHost, RedisError> {
        match &self.address {
            PrimaryAddress::Unix(_) | PrimaryAddress::Host(_) => {
                Err((ErrorKind::Client, "there are no Sentinels").into())
            }
            PrimaryAddress::Sentinel { hosts, name } => within(CONNECT_LIMIT, self.ask_sentinels(hosts, name)).await,
        }
    }

    /// Asks the Sentinels at the same time, until more than half have given the same answer: one that hangs delays nothing.
    pub(super) async fn ask_sentinels(&self, hosts: &[RedisHost], name: &str) -> Result<RedisHost, RedisError> {
        let mut answers: FuturesUnordered<_> = hosts.iter().map(|host| self.ask_sentinel(host, name)).collect();
        let mut votes: HashMap<RedisHost, usize> = HashMap::new();
        let mut failure = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(primary) => {
                    let count = votes.entry(primary.clone()).or_default();
                    *count += 1;
                    if *count > hosts.len() / 2 {
                        return Ok(primary);
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| (ErrorKind::Client, "the Sentinels name different primaries").into()))
    }

    async fn ask_sentinel(&self, host: &RedisHost, name: &str) -> Result<RedisHost, RedisError> {
        // Sentinels have passwords of their own, and most have none.
        let mut connection = match self.dial(self.tcp(host), Credentials::Withheld).await {
            Err(error) if error.code() == Some("NOAUTH") => self.dial(self.tcp(host), Credentials::Sent).await?.0,
            opened => opened?.0,
        };
        let mut question = ::redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        let found: Option<(String, u16)> = question.query_async(&mut connection).await?;
        let (name, port) = found.ok_or((ErrorKind::MasterNameNotFoundBySentinel, "no primary with this name"))?;
        Ok(RedisHost { name, port })
    }
}

//! QR-code tickets. The ticket of a scan id is found through a pointer in the scan id's own partition. It is written before
//! the ticket: a pointer to nothing says what no pointer says.

use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;

use super::records;
use super::script::{RedisCall, ServerScript, script};
use super::sessions::outcome;
use super::{FEED_CAPACITY, FEED_LIFETIME, RedisStore, millis};
use crate::domain::partition::Partition;
use crate::domain::session::Version;
use crate::domain::ticket::{ScanDigest, Ticket, TicketDigest};
use crate::domain::write::WriteOutcome;
use crate::store::{StoreError, TicketStore};

static ADVANCE: LazyLock<ServerScript> = script!("announce.lua", "advance.lua");

/// How long a ticket is kept after it expires; longer than the delivery window of a confirmed one.
const RETENTION: Duration = Duration::from_secs(120);

impl RedisStore {
    fn ticket_lifetime(&self, ticket: &Ticket) -> u64 {
        self.lifetime(ticket.expires_at.plus(RETENTION))
    }
}

#[async_trait]
impl TicketStore for RedisStore {
    async fn create_ticket(&self, ticket: &Ticket) -> Result<(), StoreError> {
        let keys = self.servers.keys();
        let (scan_id, id) = (ticket.scan_id.as_str(), ticket.id.as_str());
        let (scan, partition) = (Partition::of(scan_id), Partition::of(id));
        let lifetime = self.ticket_lifetime(ticket);
        let set = |partition, key: String, value: String| {
            RedisCall::command(partition, "SET").arg(key).arg(value).arg("PX").arg(lifetime)
        };
        self.servers.run::<()>("create_ticket", set(scan, keys.scan(scan, scan_id), id.to_owned())).await?;
        let record = set(partition, keys.ticket(partition, id), records::ticket_text(ticket)?);
        self.servers.change::<()>("create_ticket", record).await
    }

    async fn ticket(&self, id: &TicketDigest) -> Result<Option<Ticket>, StoreError> {
        let partition = Partition::of(id.as_str());
        let call = RedisCall::command(partition, "GET").arg(self.servers.keys().ticket(partition, id.as_str()));
        let record: Option<Vec<u8>> = self.servers.run("ticket", call).await?;
        let ticket = record.map(|record| records::parse_ticket(&record)).transpose()?;
        match ticket {
            Some(ticket) if ticket.id != *id => {
                Err(StoreError::Damaged("a ticket's record names another ticket".into()))
            }
            ticket => Ok(ticket),
        }
    }

    async fn ticket_of_scan(&self, id: &ScanDigest) -> Result<Option<Ticket>, StoreError> {
        let partition = Partition::of(id.as_str());
        let call = RedisCall::command(partition, "GET").arg(self.servers.keys().scan(partition, id.as_str()));
        let found: Option<String> = self.servers.run("ticket_of_scan", call).await?;
        let Some(ticket) = found else { return Ok(None) };
        Ok(self.ticket(&TicketDigest::from_stored(ticket)).await?.filter(|ticket| ticket.scan_id == *id))
    }

    async fn advance(&self, ticket: &Ticket, seen: Version) -> Result<WriteOutcome, StoreError> {
        let (partition, keys) = (Partition::of(ticket.id.as_str()), self.servers.keys());
        let all = [keys.ticket(partition, ticket.id.as_str()), keys.feed(partition)];
        let call = RedisCall::script(&ADVANCE, partition, &all)
            .arg(seen.0)
            .arg(records::ticket_text(ticket)?)
            .arg(self.ticket_lifetime(ticket))
            .arg(FEED_CAPACITY)
            .arg(millis(FEED_LIFETIME))
            .arg(ticket.id.as_str());
        Ok(outcome(self.servers.change("advance", call).await?))
    }
}

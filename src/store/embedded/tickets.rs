//! Tickets in the SQLite file.

use async_trait::async_trait;
use sqlx::Row;

use super::{EmbeddedStore, parse, unavailable, write};
use crate::domain::session::Version;
use crate::domain::ticket::{ScanDigest, Ticket, TicketDigest};
use crate::domain::write::WriteOutcome;
use crate::store::{Change, StoreError, TicketStore};

impl EmbeddedStore {
    async fn ticket_where(&self, query: &'static str, key: &str) -> Result<Option<Ticket>, StoreError> {
        let row = sqlx::query(query).bind(key).fetch_optional(self.file.readers()).await.map_err(unavailable)?;
        row.map(|row| parse(row.get::<&str, _>(0))).transpose()
    }
}

#[async_trait]
impl TicketStore for EmbeddedStore {
    async fn create_ticket(&self, ticket: &Ticket) -> Result<(), StoreError> {
        let body = write(ticket)?;
        let insert = sqlx::query("INSERT INTO tickets VALUES ($1, $2, $3, $4, $5)")
            .bind(ticket.id.as_str())
            .bind(ticket.scan_id.as_str())
            .bind(ticket.version.0)
            .bind(ticket.expires_at.millis())
            .bind(body);
        self.file.execute(insert).await?;
        Ok(())
    }

    async fn ticket(&self, id: &TicketDigest) -> Result<Option<Ticket>, StoreError> {
        self.ticket_where("SELECT body FROM tickets WHERE id = $1", id.as_str()).await
    }

    async fn ticket_of_scan(&self, id: &ScanDigest) -> Result<Option<Ticket>, StoreError> {
        self.ticket_where("SELECT body FROM tickets WHERE scan_id = $1", id.as_str()).await
    }

    async fn advance(&self, ticket: &Ticket, seen: Version) -> Result<WriteOutcome, StoreError> {
        const QUERY: &str =
            "UPDATE tickets SET version = $1, body = $2, expires_at = $5 WHERE id = $3 AND version = $4";
        let body = write(ticket)?;
        let outcome = self.update(QUERY, ticket.id.as_str(), body, ticket.version, seen, ticket.expires_at).await?;
        if outcome == WriteOutcome::Applied {
            self.publish(Change::TicketMoved(ticket.id.clone()));
        }
        Ok(outcome)
    }
}

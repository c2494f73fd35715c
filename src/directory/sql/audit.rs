//! The audit log in SQL.

use std::time::Duration;

use async_trait::async_trait;

use super::SqlDirectory;
use super::statement::Statement;
use crate::directory::DirectoryError;
use crate::directory::audit::{AuditEntry, AuditLog, AuditRecord};
use crate::domain::clock::Timestamp;
use crate::domain::secret::random_name;

#[async_trait]
impl AuditLog for SqlDirectory {
    async fn append_audit_record(&self, record: AuditRecord<'_>, refused: &str) -> Result<String, DirectoryError> {
        let id = random_name(22);
        let append = Statement::new(
            "INSERT INTO audit_log (at, corp_id, employee_id, event, by_whom, session_id, detail, refused, id, sequence)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(self.clock.now().millis())
        .bind(record.corp_id)
        .bind(record.employee_id)
        .bind(record.event.as_str())
        .bind(record.by)
        .bind(record.session_id)
        .bind(record.detail)
        .bind(refused)
        .bind(id.as_str())
        .bind(self.next_in_log());
        self.apply(append).await.map(|_| id)
    }

    async fn mark_audit_record_failed(&self, id: &str, refused: &str) -> Result<(), DirectoryError> {
        let mark = Statement::new("UPDATE audit_log SET refused = $2 WHERE id = $1").bind(id).bind(refused);
        self.apply(mark).await.map(|_| ())
    }

    async fn audit_entries(&self, employee_id: Option<&str>, limit: usize) -> Result<Vec<AuditEntry>, DirectoryError> {
        let rows = Statement::new(
            "SELECT at, corp_id, employee_id, event, by_whom, session_id, detail, refused
             FROM audit_log WHERE $1 = '' OR employee_id = $1 ORDER BY at DESC, sequence DESC LIMIT $2",
        )
        .bind(employee_id.unwrap_or_default())
        .bind(limit)
        .fetch_all(&self.database)
        .await?;
        let entries = rows.iter().map(|row| AuditEntry {
            at: Timestamp::from_millis(row.get(0)),
            corp_id: row.get(1),
            employee_id: row.get(2),
            event: row.get(3),
            by: row.get(4),
            session_id: row.get(5),
            detail: row.get(6),
            refused: row.get(7),
        });
        Ok(entries.collect())
    }

    async fn prune_audit_log(&self, kept: Duration) -> Result<(), DirectoryError> {
        self.delete_older_than("DELETE FROM audit_log WHERE at < $1", kept).await
    }
}

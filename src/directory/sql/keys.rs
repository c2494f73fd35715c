//! Signing keys in SQL.

use async_trait::async_trait;

use super::SqlDirectory;
use super::statement::{Batch, Order, Statement};
use crate::directory::DirectoryError;
use crate::directory::keys::{KeyGeneration, KeyRecord, KeyRecordChange, KeyRecordSet, KeyRecords};
use crate::domain::session::KeyId;
use crate::domain::write::WriteOutcome;

#[async_trait]
impl KeyRecords for SqlDirectory {
    async fn key_generation(&self) -> Result<KeyGeneration, DirectoryError> {
        let row = Statement::new("SELECT generation FROM signing_key_generation").fetch_one(&self.database).await?;
        Ok(KeyGeneration(row.get(0)))
    }

    async fn key_records(&self) -> Result<KeyRecordSet, DirectoryError> {
        // One statement, so that the keys are those of this generation; a row without a key if there are none.
        let rows = Statement::new(
            "SELECT generation, key_id, private_key FROM signing_key_generation LEFT JOIN signing_keys ON 1 = 1
             ORDER BY key_id",
        )
        .fetch_all(&self.database)
        .await?;
        let generation = KeyGeneration(rows.first().map_or(0, |row| row.get(0)));
        let records = rows.iter().filter_map(|row| {
            let id = row.get::<Option<String>>(1)?;
            Some(KeyRecord { id: KeyId::new(id), private_key: row.get(2) })
        });
        Ok(KeyRecordSet { generation, records: records.collect() })
    }

    async fn change_keys(
        &self,
        seen: KeyGeneration,
        changes: &[KeyRecordChange],
    ) -> Result<WriteOutcome, DirectoryError> {
        // The guard locks the row of the generation, so that changes come one after another.
        let count =
            Statement::new("UPDATE signing_key_generation SET generation = generation + 1 WHERE generation = $1");
        let batch = Batch::new(Order::Concurrent).guard(count.bind(seen.0));
        self.database.commit(changes.iter().map(statement).fold(batch, Batch::run)).await
    }
}

fn statement(change: &KeyRecordChange) -> Statement {
    match change {
        KeyRecordChange::Put(record) => Statement::new(
            "INSERT INTO signing_keys (key_id, private_key) VALUES ($1, $2)
             ON CONFLICT (key_id) DO UPDATE SET private_key = excluded.private_key",
        )
        .bind(record.id.as_str())
        .bind(record.private_key.as_deref()),
        KeyRecordChange::Delete(id) => Statement::new("DELETE FROM signing_keys WHERE key_id = $1").bind(id.as_str()),
    }
}

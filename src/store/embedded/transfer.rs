//! Sessions and denials that come from another store or go there.

use async_trait::async_trait;
use futures::FutureExt;
use sqlx::Row;

use super::{EmbeddedStore, rows_of, unavailable, write};
use crate::domain::clock::Timestamp;
use crate::domain::session::{EndCause, Session, SessionId};
use crate::store::transfer::{Denial, DenialPage, ImportCounts, PortableSession, SessionTransfer};
use crate::store::{Change, SessionCursor, StoreError};

#[async_trait]
impl SessionTransfer for EmbeddedStore {
    async fn denials(&self, after: Option<&SessionCursor>, limit: usize) -> Result<DenialPage, StoreError> {
        // Those of expired tokens count too: a page must not read all of them in search of another.
        const PAGE: &str = "SELECT id, until FROM denied WHERE id > $1 ORDER BY id LIMIT $2";
        let rows = sqlx::query(PAGE)
            .bind(after.map_or("", SessionCursor::as_str))
            .bind(rows_of(limit))
            .fetch_all(self.file.readers())
            .await
            .map_err(unavailable)?;
        let now = self.clock.now();
        let denials = rows
            .iter()
            .map(|row| Denial { id: SessionId::new(row.get::<&str, _>(0)), until: Timestamp::from_millis(row.get(1)) });
        let next = rows.last().filter(|_| rows.len() == limit).map(|row| SessionCursor::new(row.get(0)));
        Ok(DenialPage { denials: denials.filter(|denial| denial.until > now).collect(), next })
    }

    async fn import_denials(&self, denials: &[Denial]) -> Result<(), StoreError> {
        const DENY: [&str; 3] = [
            "DELETE FROM sessions WHERE id IN (SELECT json_extract(value, '$[0]') FROM json_each($1))",
            "DELETE FROM seen WHERE id IN (SELECT json_extract(value, '$[0]') FROM json_each($1))",
            "INSERT INTO denied SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each($1)
                 WHERE true ON CONFLICT (id) DO UPDATE SET until = max(until, excluded.until)",
        ];
        let list: Vec<(&str, i64)> = denials.iter().map(|denial| (denial.id.as_str(), denial.until.millis())).collect();
        let list = write(&list)?;
        self.file
            .write(move |connection| {
                async move {
                    for query in DENY {
                        sqlx::query(query).bind(list.as_str()).execute(&mut *connection).await?;
                    }
                    Ok(())
                }
                .boxed()
            })
            .await?;
        for denial in denials {
            // Why the other store denies it is not recorded.
            self.publish(Change::SessionEnded { id: denial.id.clone(), cause: EndCause::Operator });
        }
        Ok(())
    }

    async fn import_sessions(&self, sessions: &[PortableSession]) -> Result<ImportCounts, StoreError> {
        const INSERT: &str = "INSERT INTO sessions
             SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
                 json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
                 json_extract(value, '$[6]')
             FROM json_each($1) AS imported
             WHERE NOT EXISTS (SELECT 1 FROM denied WHERE denied.id = json_extract(imported.value, '$[0]'))
             ON CONFLICT (id) DO UPDATE SET corp_id = excluded.corp_id, employee_id = excluded.employee_id,
                 version = excluded.version, issued_at = excluded.issued_at, expires_at = excluded.expires_at,
                 body = excluded.body
             WHERE sessions.version < excluded.version";
        const NOTE_SEEN: &str = "INSERT INTO seen
             SELECT sessions.id, json_extract(imported.value, '$[7]') FROM json_each($1) AS imported
             CROSS JOIN sessions WHERE sessions.id = json_extract(imported.value, '$[0]')
                 AND json_extract(imported.value, '$[7]') IS NOT NULL
             ON CONFLICT (id) DO UPDATE SET at = max(at, excluded.at)";
        const DENIED: &str = "SELECT count(*) FROM json_each($1) AS imported
             CROSS JOIN denied WHERE denied.id = json_extract(imported.value, '$[0]')";
        let rows = sessions.iter().map(row_of).collect::<Result<Vec<_>, _>>()?;
        let list = write(&rows)?;
        let (written, denied): (u64, i64) = self
            .file
            .write(move |connection| {
                async move {
                    let written = sqlx::query(INSERT).bind(list.as_str()).execute(&mut *connection).await?;
                    sqlx::query(NOTE_SEEN).bind(list.as_str()).execute(&mut *connection).await?;
                    let denied = sqlx::query_scalar(DENIED).bind(list.as_str()).fetch_one(&mut *connection).await?;
                    Ok((written.rows_affected(), denied))
                }
                .boxed()
            })
            .await?;
        for PortableSession { session, .. } in sessions {
            self.publish(Change::SessionChanged(Box::new(session.clone())));
        }
        let (written, denied) = (usize::try_from(written).unwrap_or(0), usize::try_from(denied).unwrap_or(0));
        Ok(ImportCounts { written, denied, kept: sessions.len().saturating_sub(written + denied) })
    }
}

/// The columns of a session, and when it was last used.
type ImportedRow<'a> = (&'a str, &'a str, &'a str, i64, i64, i64, String, Option<i64>);

fn row_of(PortableSession { session, last_seen }: &PortableSession) -> Result<ImportedRow<'_>, StoreError> {
    let Session { id, corp_id, employee_id, version, issued_at, expires_at, .. } = session;
    Ok((
        id.as_str(),
        corp_id.as_str(),
        employee_id.as_str(),
        version.0,
        issued_at.millis(),
        expires_at.millis(),
        write(session)?,
        last_seen.map(Timestamp::millis),
    ))
}

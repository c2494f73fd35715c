//! Second factors and lockouts in SQL.

use std::time::Duration;

use async_trait::async_trait;

use super::records::employee_of;
use super::row::SqlRow;
use super::statement::Statement;
use super::{SqlDirectory, of_account, unavailable};
use crate::directory::DirectoryError;
use crate::directory::factors::{Account, Agent, ExpectedPassword, FactorKind, Factors, LocalPassword, OtpDevice};
use crate::directory::membership::MembershipRecords;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId};
use crate::domain::lockout::Lockout;
use crate::domain::role::RoleName;
use crate::domain::secret::{Secret, random_name};
use crate::domain::session::Version;
use crate::domain::write::WriteOutcome;

#[async_trait]
impl Factors for SqlDirectory {
    async fn by_name(&self, corp_id: &CorpId, name: &str) -> Result<Option<(Employee, Option<Agent>)>, DirectoryError> {
        // Ids are ASCII, which SQL folds; a name that folds to anything else matches no employee.
        let row = Statement::new(
            "SELECT employees.corp_id, employees.employee_id, name, department, avatar, disabled, last_login_ip,
                 inactive, agents.role, password_hash, otp_required, password_id
             FROM employees LEFT JOIN agents
                 ON agents.corp_id = employees.corp_id AND agents.employee_id = employees.employee_id
             WHERE employees.corp_id = $1 AND lower(employees.employee_id) = $2
             ORDER BY CASE WHEN employees.employee_id = $3 THEN 0 ELSE 1 END, employees.employee_id LIMIT 1",
        )
        .bind(corp_id.as_str())
        .bind(EmployeeId::folded(name))
        .bind(name)
        .fetch_optional(&self.database)
        .await?;
        Ok(row.map(|row| (employee_of(&row), agent_of(&row, 8))))
    }

    async fn agent(&self, whose: Account<'_>) -> Result<Option<Agent>, DirectoryError> {
        let row = Statement::new(
            "SELECT role, password_hash, otp_required, password_id FROM agents WHERE corp_id = $1 AND employee_id = $2",
        )
        .bind(whose.corp_id.as_str())
        .bind(whose.employee_id.as_str())
        .fetch_optional(&self.database)
        .await?;
        Ok(row.as_ref().and_then(|row| agent_of(row, 0)))
    }

    async fn renew_password(&self, whose: Account<'_>, old: &str, hash: &str) -> Result<WriteOutcome, DirectoryError> {
        const RENEW: &str =
            "UPDATE agents SET password_hash = $3 WHERE corp_id = $1 AND employee_id = $2 AND password_hash = $4";
        self.apply(of_account(RENEW, whose).bind(hash).bind(old)).await
    }

    async fn set_password(
        &self,
        whose: Account<'_>,
        hash: &str,
        expected: ExpectedPassword<'_>,
    ) -> Result<Option<String>, DirectoryError> {
        const SET: &str = "UPDATE agents SET password_hash = $3, password_id = $4
             WHERE corp_id = $1 AND employee_id = $2 AND ($5 <> 0 OR coalesce(password_id, '') = $6)";
        let id = random_name(16);
        let (any, only) = expected.parameters();
        let set = self.apply(of_account(SET, whose).bind(hash).bind(id.as_str()).bind(any).bind(only)).await?;
        if set == WriteOutcome::Conflict {
            return Ok(None);
        }
        self.queue_recheck(whose).await?;
        Ok(Some(id))
    }

    async fn otp_device(&self, whose: Account<'_>) -> Result<OtpDevice, DirectoryError> {
        let row = Statement::new(
            "SELECT secret, pending, bound_at, last_verified_at FROM otp_devices
             WHERE corp_id = $1 AND employee_id = $2",
        )
        .bind(whose.corp_id.as_str())
        .bind(whose.employee_id.as_str())
        .fetch_optional(&self.database)
        .await?;
        let time = |millis: Option<i64>| millis.map(Timestamp::from_millis);
        Ok(row.map_or_else(OtpDevice::default, |row| OtpDevice {
            secret: row.get(0),
            pending: row.get(1),
            bound_at: time(row.get(2)),
            last_verified_at: time(row.get(3)),
        }))
    }

    async fn offer_otp(&self, whose: Account<'_>, pending: &str) -> Result<(), DirectoryError> {
        const OFFER: &str = "INSERT INTO otp_devices (corp_id, employee_id, pending)
             SELECT $1, $2, $3 FROM employees WHERE corp_id = $1 AND employee_id = $2
             ON CONFLICT (corp_id, employee_id) DO UPDATE SET pending = excluded.pending";
        self.apply_exclusively(of_account(OFFER, whose).bind(pending)).await.map(|_| ())
    }

    async fn bind_otp(
        &self,
        whose: Account<'_>,
        pending: &str,
        in_use: Option<&str>,
        step: i64,
    ) -> Result<WriteOutcome, DirectoryError> {
        // The used time steps of another secret do not apply to this one.
        const BIND: &str = "UPDATE otp_devices SET secret = pending, pending = NULL, bound_at = $5,
             last_verified_at = $5, last_step = $4 WHERE corp_id = $1 AND employee_id = $2 AND pending = $3
             AND coalesce(secret, '') = $6";
        let (now, in_use) = (self.clock.now().millis(), in_use.unwrap_or_default());
        self.apply(of_account(BIND, whose).bind(pending).bind(step).bind(now).bind(in_use)).await
    }

    async fn unbind_otp(
        &self,
        whose: Account<'_>,
        bound: &str,
        replaced: Option<&str>,
    ) -> Result<WriteOutcome, DirectoryError> {
        const UNBIND: &str =
            "UPDATE otp_devices SET secret = $4, bound_at = CASE WHEN $4 IS NULL THEN NULL ELSE bound_at END
             WHERE corp_id = $1 AND employee_id = $2 AND secret = $3";
        self.apply(of_account(UNBIND, whose).bind(bound).bind(replaced)).await
    }

    async fn use_otp(&self, whose: Account<'_>, secret: &str, step: i64) -> Result<WriteOutcome, DirectoryError> {
        const USE: &str = "UPDATE otp_devices SET last_step = $3, last_verified_at = $4
             WHERE corp_id = $1 AND employee_id = $2 AND secret = $5 AND last_step < $3";
        let now = self.clock.now().millis();
        self.apply(of_account(USE, whose).bind(step).bind(now).bind(secret)).await
    }

    async fn otp_secrets_unlike(&self, prefix: &str) -> Result<Vec<(CorpId, EmployeeId, String)>, DirectoryError> {
        let rows = Statement::new(
            "SELECT corp_id, employee_id, secret FROM otp_devices WHERE substr(secret, 1, length($1)) <> $1
             UNION ALL
             SELECT corp_id, employee_id, pending FROM otp_devices WHERE substr(pending, 1, length($1)) <> $1",
        )
        .bind(prefix)
        .fetch_all(&self.database)
        .await?;
        let secret = |row: &SqlRow| (CorpId::new(row.get::<&str>(0)), EmployeeId::new(row.get::<&str>(1)), row.get(2));
        Ok(rows.iter().map(secret).collect())
    }

    async fn renew_otp(&self, whose: Account<'_>, old: &str, new: &str) -> Result<WriteOutcome, DirectoryError> {
        const RENEW: &str = "UPDATE otp_devices SET secret = CASE WHEN secret = $3 THEN $4 ELSE secret END,
             pending = CASE WHEN pending = $3 THEN $4 ELSE pending END
             WHERE corp_id = $1 AND employee_id = $2 AND (secret = $3 OR pending = $3)";
        self.apply(of_account(RENEW, whose).bind(old).bind(new)).await
    }

    async fn remove_otp(&self, whose: Account<'_>) -> Result<WriteOutcome, DirectoryError> {
        const REMOVE: &str = "DELETE FROM otp_devices WHERE corp_id = $1 AND employee_id = $2";
        self.apply(of_account(REMOVE, whose)).await
    }

    async fn lockout(&self, tried: FactorKind, whose: Account<'_>) -> Result<(Lockout, Version), DirectoryError> {
        let row = Statement::new(
            "SELECT state, version FROM lockouts WHERE corp_id = $1 AND employee_id = $2 AND tried = $3",
        )
        .bind(whose.corp_id.as_str())
        .bind(whose.employee_id.as_str())
        .bind(tried.as_str())
        .fetch_optional(&self.database)
        .await?;
        let Some(row) = row else { return Ok((Lockout::default(), Version(0))) };
        let state = serde_json::from_str(row.get::<&str>(0)).map_err(unavailable)?;
        Ok((state, Version(row.get(1))))
    }

    async fn replace_lockout(
        &self,
        tried: FactorKind,
        whose: Account<'_>,
        lockout: &Lockout,
        seen: Version,
    ) -> Result<WriteOutcome, DirectoryError> {
        const FIRST: &str = "INSERT INTO lockouts (corp_id, employee_id, tried, state, version, changed_at)
             VALUES ($1, $2, $3, $4, $5 + 1, $6) ON CONFLICT (corp_id, employee_id, tried) DO NOTHING";
        const NEXT: &str = "UPDATE lockouts SET state = $4, version = $5 + 1, changed_at = $6
             WHERE corp_id = $1 AND employee_id = $2 AND tried = $3 AND version = $5";
        let put = if seen == Version(0) { FIRST } else { NEXT };
        let state = serde_json::to_string(lockout).map_err(unavailable)?;
        let now = self.clock.now().millis();
        self.apply(of_account(put, whose).bind(tried.as_str()).bind(state).bind(seen.0).bind(now)).await
    }

    async fn prune_unknown_lockouts(&self, quiet: Duration, most: usize) -> Result<(), DirectoryError> {
        // Rows with the same timestamp are deleted together.
        const FORGET: &str = "DELETE FROM lockouts WHERE corp_id = $1 AND (changed_at < $2 OR changed_at <=
             (SELECT changed_at FROM lockouts WHERE corp_id = $1 ORDER BY changed_at DESC LIMIT 1 OFFSET $3))";
        let quiet = i64::try_from(quiet.as_millis()).unwrap_or(i64::MAX);
        let forget = Statement::new(FORGET)
            .bind(CorpId::unknown().as_str())
            .bind(self.clock.now().millis().saturating_sub(quiet))
            .bind(most);
        self.apply(forget).await.map(|_| ())
    }
}

/// The agent record in a row, whose columns begin at `first`; none if its role is NULL.
fn agent_of(row: &SqlRow, first: usize) -> Option<Agent> {
    let role: Option<String> = row.get(first);
    role.map(|role| Agent {
        role: RoleName::new(role),
        password: password_of(row.get(first + 1), row.get(first + 3)),
        otp_required: row.get::<i64>(first + 2) != 0,
    })
}

fn password_of(hash: Option<String>, id: Option<String>) -> Option<LocalPassword> {
    hash.map(|hash| LocalPassword { id: id.unwrap_or_default(), hash: Secret::new(hash) })
}

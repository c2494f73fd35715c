//! What the platform says about employees, in SQL.

use async_trait::async_trait;

use super::statement::Statement;
use super::{SqlDirectory, of_account, people};
use crate::directory::DirectoryError;
use crate::directory::factors::Account;
use crate::directory::membership::{MemberEvidence, MembershipRecords, RecheckEntry};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId, InactiveReason};
use crate::domain::link::{Link, PlatformAccount};
use crate::domain::write::WriteOutcome;

/// The `platform_active_at` of an employee of whom migration 0012 knew nothing but a sign-in.
const SIGNED_IN: i64 = 0;

impl SqlDirectory {
    /// The `platform_active_at` that a query finds whose `$1` and `$2` are a corporation and an ID there.
    async fn active_at(&self, query: &'static str, corp_id: &str, id: &str) -> Result<Option<i64>, DirectoryError> {
        let found = Statement::new(query).bind(corp_id).bind(id).fetch_optional(&self.database).await?;
        Ok(found.and_then(|row| row.get(0)))
    }

    /// Runs an UPDATE whose `$1` and `$2` are the account of a link, and `$3` the current time.
    async fn record_link(&self, update: &'static str, account: &PlatformAccount) -> Result<(), DirectoryError> {
        let query = Statement::new(update).bind(account.corp_id.as_str()).bind(account.user_id.as_str());
        self.apply(query.bind(self.clock.now().millis())).await.map(|_| ())
    }
}

#[async_trait]
impl MembershipRecords for SqlDirectory {
    async fn record_active(&self, whose: Account<'_>) -> Result<(), DirectoryError> {
        const RECORD: &str = "UPDATE employees SET platform_active_at = $3,
                 platform_checked_at = CASE WHEN platform_checked_at IS NULL THEN NULL ELSE $3 END
             WHERE corp_id = $1 AND employee_id = $2";
        let now = self.clock.now().millis();
        self.apply(of_account(RECORD, whose).bind(now)).await.map(|_| ())
    }

    async fn member_evidence(&self, whose: Account<'_>) -> Result<Option<MemberEvidence>, DirectoryError> {
        const EMPLOYEE: &str = "SELECT platform_active_at FROM employees WHERE corp_id = $1 AND employee_id = $2";
        let active_at = self.active_at(EMPLOYEE, whose.corp_id.as_str(), whose.employee_id.as_str()).await?;
        Ok(active_at.map(|at| if at == SIGNED_IN { MemberEvidence::SignedIn } else { MemberEvidence::CalledActive }))
    }

    async fn record_link_active(&self, account: &PlatformAccount) -> Result<(), DirectoryError> {
        const ACTIVE: &str = "UPDATE platform_links SET platform_active_at = $3, platform_inactive_at = NULL
             WHERE corp_id = $1 AND user_id = $2";
        self.record_link(ACTIVE, account).await
    }

    async fn record_link_inactive(&self, account: &PlatformAccount) -> Result<(), DirectoryError> {
        const INACTIVE: &str =
            "UPDATE platform_links SET platform_inactive_at = $3 WHERE corp_id = $1 AND user_id = $2";
        self.record_link(INACTIVE, account).await
    }

    async fn has_other_links(&self, link: &Link) -> Result<bool, DirectoryError> {
        const OTHERS: &str = "SELECT count(*) FROM platform_links WHERE employee_corp_id = $1 AND employee_id = $2
             AND approved_at IS NOT NULL AND platform_inactive_at IS NULL AND NOT (corp_id = $3 AND user_id = $4)";
        let others = Statement::new(OTHERS)
            .bind(link.corp_id.as_str())
            .bind(link.employee_id.as_str())
            .bind(link.account.corp_id.as_str())
            .bind(link.account.user_id.as_str())
            .fetch_one(&self.database)
            .await?;
        Ok(others.get::<i64>(0) > 0)
    }

    async fn is_linked_member(&self, account: &PlatformAccount) -> Result<bool, DirectoryError> {
        const LINK: &str = "SELECT platform_active_at FROM platform_links WHERE corp_id = $1 AND user_id = $2";
        Ok(self.active_at(LINK, account.corp_id.as_str(), account.user_id.as_str()).await?.is_some())
    }

    async fn is_last_admin(&self, whose: Account<'_>) -> Result<bool, DirectoryError> {
        const LAST: &str = concat!("SELECT ", people::is_admin!(), " AND NOT ", people::another_admin!());
        let last = Statement::new(LAST).bind(whose.corp_id.as_str()).bind(whose.employee_id.as_str());
        Ok(last.fetch_one(&self.database).await?.get(0))
    }

    async fn disable_inactive(
        &self,
        whose: Account<'_>,
        reason: InactiveReason,
    ) -> Result<WriteOutcome, DirectoryError> {
        const DISABLE: &str = "UPDATE employees SET disabled = 1, inactive = $3
             WHERE corp_id = $1 AND employee_id = $2 AND disabled = 0";
        self.apply(of_account(DISABLE, whose).bind(reason.as_str())).await
    }

    async fn enable_returned(&self, whose: Account<'_>) -> Result<WriteOutcome, DirectoryError> {
        const ENABLE: &str = "UPDATE employees SET disabled = 0, inactive = NULL
             WHERE corp_id = $1 AND employee_id = $2 AND inactive IS NOT NULL";
        self.apply(of_account(ENABLE, whose)).await
    }

    async fn queue_recheck(&self, whose: Account<'_>) -> Result<(), DirectoryError> {
        const QUEUE: &str = "UPDATE employees SET platform_checked_at = $3
             WHERE corp_id = $1 AND employee_id = $2 AND platform_checked_at IS NULL";
        let now = self.clock.now().millis();
        self.apply(of_account(QUEUE, whose).bind(now)).await.map(|_| ())
    }

    async fn next_recheck(&self, most: usize) -> Result<Option<RecheckEntry>, DirectoryError> {
        const NEXT: &str = "SELECT corp_id, employee_id, platform_checked_at,
                 (SELECT count(*) FROM (SELECT 1 FROM employees WHERE platform_checked_at IS NOT NULL LIMIT $1) AS counted)
             FROM employees WHERE platform_checked_at IS NOT NULL
             ORDER BY platform_checked_at, corp_id, employee_id LIMIT 1";
        let row = Statement::new(NEXT).bind(most).fetch_optional(&self.database).await?;
        Ok(row.map(|row| RecheckEntry {
            corp_id: CorpId::new(row.get::<String>(0)),
            employee_id: EmployeeId::new(row.get::<String>(1)),
            checked_at: Timestamp::from_millis(row.get(2)),
            queued: usize::try_from(row.get::<i64>(3)).unwrap_or(0),
        }))
    }

    async fn limit_rechecks(&self) -> Result<(), DirectoryError> {
        const LIMIT: &str = "UPDATE employees SET platform_checked_at = $1 WHERE platform_checked_at > $1";
        self.apply(Statement::new(LIMIT).bind(self.clock.now().millis())).await.map(|_| ())
    }

    async fn move_recheck(
        &self,
        entry: &RecheckEntry,
        checked_at: Option<Timestamp>,
    ) -> Result<WriteOutcome, DirectoryError> {
        const MOVE: &str = "UPDATE employees SET platform_checked_at = $3
             WHERE corp_id = $1 AND employee_id = $2 AND platform_checked_at = $4";
        let (to, seen) = (checked_at.map(Timestamp::millis), entry.checked_at.millis());
        self.apply(of_account(MOVE, entry.account()).bind(to).bind(seen)).await
    }
}

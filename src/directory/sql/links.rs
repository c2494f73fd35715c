//! Links in SQL.

use std::time::Duration;

use async_trait::async_trait;

use super::SqlDirectory;
use super::row::SqlRow;
use super::statement::Statement;
use crate::directory::factors::Account;
use crate::directory::links::{LinkApproval, LinkPage, LinkQuery, LinkRequestOutcome, Links};
use crate::directory::{Directory, DirectoryError};
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::link::{Approval, Link, LinkState, PlatformAccount, PlatformUserId};
use crate::domain::write::WriteOutcome;

pub(super) const COLUMNS: &str =
    "corp_id, user_id, employee_corp_id, employee_id, requested_at, approved_by, approved_at,
     platform_inactive_at";

impl SqlDirectory {
    /// Runs an UPDATE or DELETE whose `$1` and `$2` are the platform account, followed by the values of its condition.
    async fn change_link(
        &self,
        statement: &'static str,
        account: &PlatformAccount,
        condition: &[&str],
    ) -> Result<WriteOutcome, DirectoryError> {
        let query = Statement::new(statement).bind(account.corp_id.as_str()).bind(account.user_id.as_str());
        let query = condition.iter().fold(query, |query, value| query.bind(*value));
        self.apply(query).await
    }
}

#[async_trait]
impl Links for SqlDirectory {
    async fn link(&self, account: &PlatformAccount) -> Result<Option<Link>, DirectoryError> {
        let select = format!("SELECT {COLUMNS} FROM platform_links WHERE corp_id = $1 AND user_id = $2");
        let row = Statement::new(sqlx::AssertSqlSafe(select))
            .bind(account.corp_id.as_str())
            .bind(account.user_id.as_str())
            .fetch_optional(&self.database)
            .await?;
        Ok(row.as_ref().map(link_of))
    }

    async fn other_spelling(&self, account: &PlatformAccount) -> Result<Option<PlatformAccount>, DirectoryError> {
        const OTHER: &str = "SELECT user_id FROM platform_links
             WHERE corp_id = $1 AND lower(user_id) = $3 AND user_id <> $2 LIMIT 1";
        let id = account.user_id.as_str();
        // Folded as the column is: its collation makes `lower` fold ASCII alone.
        let query = Statement::new(OTHER).bind(account.corp_id.as_str()).bind(id).bind(id.to_ascii_lowercase());
        let found = query.fetch_optional(&self.database).await?;
        Ok(found.map(|row| PlatformAccount {
            corp_id: account.corp_id.clone(),
            user_id: PlatformUserId::new(row.get::<String>(0)),
        }))
    }

    async fn linked_corps(&self) -> Result<Vec<CorpId>, DirectoryError> {
        let query = Statement::new("SELECT DISTINCT corp_id FROM platform_links ORDER BY corp_id");
        let rows = query.fetch_all(&self.database).await?;
        Ok(rows.iter().map(|row| CorpId::new(row.get::<String>(0))).collect())
    }

    async fn links(&self, query: LinkQuery<'_>) -> Result<LinkPage, DirectoryError> {
        const FROM: &str = "FROM platform_links WHERE ($1 = '' OR employee_corp_id = $1)
             AND ($2 = '' OR employee_id = $2) AND ($3 = '' OR corp_id = $3)
             AND ($4 = '' OR ($4 = 'approved') = (approved_at IS NOT NULL))";
        let employee_corp_id = query.employee_corp_id.map_or("", CorpId::as_str);
        let employee_id = query.employee_id.unwrap_or_default();
        let corp_id = query.corp_id.unwrap_or_default();
        let state = query.state.map_or("", LinkState::as_str);
        let total = Statement::new(sqlx::AssertSqlSafe(format!("SELECT count(*) {FROM}")))
            .bind(employee_corp_id)
            .bind(employee_id)
            .bind(corp_id)
            .bind(state)
            .count(&self.database)
            .await?;
        let page = format!(
            "SELECT {COLUMNS} {FROM}
             ORDER BY CASE WHEN approved_at IS NULL THEN 0 ELSE 1 END, corp_id, user_id LIMIT $5 OFFSET $6"
        );
        let rows = Statement::new(sqlx::AssertSqlSafe(page))
            .bind(employee_corp_id)
            .bind(employee_id)
            .bind(corp_id)
            .bind(state)
            .bind(query.limit)
            .bind(query.skip)
            .fetch_all(&self.database)
            .await?;
        Ok(LinkPage { items: rows.iter().map(link_of).collect(), total })
    }

    async fn request_link(
        &self,
        account: &PlatformAccount,
        employee: Account<'_>,
        max_pending: usize,
    ) -> Result<LinkRequestOutcome, DirectoryError> {
        // One statement, so that concurrent requests keep the limit and none replaces a link approved meanwhile.
        const REQUEST: &str =
            "INSERT INTO platform_links (corp_id, user_id, employee_corp_id, employee_id, requested_at)
             SELECT $1, $2, $3, $4, $5 WHERE EXISTS (SELECT 1 FROM employees WHERE corp_id = $3 AND employee_id = $4)
                 AND (SELECT count(*) FROM platform_links AS other WHERE other.corp_id = $1 AND other.user_id <> $2
                     AND other.approved_at IS NULL) < $6
             ON CONFLICT (corp_id, user_id) DO UPDATE SET employee_corp_id = $3, employee_id = $4, requested_at = $5
             WHERE platform_links.approved_at IS NULL";
        let request = Statement::new(REQUEST)
            .bind(account.corp_id.as_str())
            .bind(account.user_id.as_str())
            .bind(employee.corp_id.as_str())
            .bind(employee.employee_id.as_str())
            .bind(self.clock.now().millis())
            .bind(max_pending);
        if self.apply_exclusively(request).await? == WriteOutcome::Applied {
            return Ok(LinkRequestOutcome::Requested);
        }
        if self.link(account).await?.is_some_and(|link| link.approval.is_some()) {
            return Ok(LinkRequestOutcome::AlreadyLinked);
        }
        Ok(match self.employee(employee.corp_id, employee.employee_id).await? {
            None => LinkRequestOutcome::NoEmployee,
            Some(_) => LinkRequestOutcome::TooMany,
        })
    }

    async fn approve_link(
        &self,
        account: &PlatformAccount,
        employee: Account<'_>,
        by: &str,
    ) -> Result<LinkApproval, DirectoryError> {
        const APPROVE: &str = "INSERT INTO platform_links
                 (corp_id, user_id, employee_corp_id, employee_id, requested_at, approved_by, approved_at)
             SELECT $1, $2, $3, $4, $5, $6, $5
             WHERE EXISTS (SELECT 1 FROM employees WHERE corp_id = $3 AND employee_id = $4)
             ON CONFLICT (corp_id, user_id) DO UPDATE
             SET employee_corp_id = $3, employee_id = $4, approved_by = $6, approved_at = $5,
                 requested_at = CASE WHEN platform_links.employee_corp_id = $3 AND platform_links.employee_id = $4
                     THEN platform_links.requested_at ELSE $5 END
             WHERE platform_links.approved_at IS NULL
                 OR (platform_links.approved_by = $7 AND $6 <> $7
                     AND platform_links.employee_corp_id = $3 AND platform_links.employee_id = $4)";
        let approve = Statement::new(APPROVE)
            .bind(account.corp_id.as_str())
            .bind(account.user_id.as_str())
            .bind(employee.corp_id.as_str())
            .bind(employee.employee_id.as_str())
            .bind(self.clock.now().millis())
            .bind(by)
            .bind(Approval::AUTOMATIC);
        if self.apply_exclusively(approve).await? == WriteOutcome::Applied {
            return Ok(LinkApproval::Done);
        }
        if self.employee(employee.corp_id, employee.employee_id).await?.is_none() {
            return Ok(LinkApproval::NoEmployee);
        }
        let same = |link: Link| link.leads_to(employee.corp_id, employee.employee_id);
        Ok(match self.link(account).await?.is_some_and(same) {
            true => LinkApproval::Unchanged,
            false => LinkApproval::LinkedToAnother,
        })
    }

    async fn withdraw_automatic_approval(&self, account: &PlatformAccount) -> Result<WriteOutcome, DirectoryError> {
        const WITHDRAW: &str = "UPDATE platform_links SET approved_by = NULL, approved_at = NULL
             WHERE corp_id = $1 AND user_id = $2 AND approved_by = $3";
        self.change_link(WITHDRAW, account, &[Approval::AUTOMATIC]).await
    }

    async fn remove_link(
        &self,
        account: &PlatformAccount,
        employee: Account<'_>,
        state: Option<LinkState>,
    ) -> Result<WriteOutcome, DirectoryError> {
        const REMOVE: &str = "DELETE FROM platform_links WHERE corp_id = $1 AND user_id = $2
             AND employee_corp_id = $3 AND employee_id = $4
             AND ($5 = '' OR ($5 = 'approved') = (approved_at IS NOT NULL))";
        let state = state.map_or("", LinkState::as_str);
        self.change_link(REMOVE, account, &[employee.corp_id.as_str(), employee.employee_id.as_str(), state]).await
    }

    async fn prune_link_requests(&self, kept: Duration) -> Result<(), DirectoryError> {
        self.delete_older_than("DELETE FROM platform_links WHERE approved_at IS NULL AND requested_at < $1", kept).await
    }
}

pub(super) fn link_of(row: &SqlRow) -> Link {
    let approval = |at: i64| Approval { by: row.get(5), at: Timestamp::from_millis(at) };
    Link {
        account: PlatformAccount {
            corp_id: CorpId::new(row.get::<String>(0)),
            user_id: PlatformUserId::new(row.get::<String>(1)),
        },
        corp_id: CorpId::new(row.get::<String>(2)),
        employee_id: EmployeeId::new(row.get::<String>(3)),
        requested_at: Timestamp::from_millis(row.get(4)),
        approval: row.get::<Option<i64>>(6).map(approval),
        gone_at: row.get::<Option<i64>>(7).map(Timestamp::from_millis),
    }
}

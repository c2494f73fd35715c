//! Finds the account that an operator or administrator names.

use std::sync::Arc;

use super::AdminError;
use crate::directory::factors::Account;
use crate::directory::{Directory, DirectoryError};
use crate::domain::employee::{CorpId, Employee, EmployeeId};

/// A well-formed corporation and employee ID. The employee may not exist.
#[derive(Debug, Clone)]
pub(crate) struct AccountId {
    pub(crate) corp_id: CorpId,
    pub(crate) employee_id: EmployeeId,
}

impl AccountId {
    /// Borrows it in the form that the directory takes.
    pub(crate) fn as_account(&self) -> Account<'_> {
        Account { corp_id: &self.corp_id, employee_id: &self.employee_id }
    }
}

/// Looks accounts up in the directory.
#[derive(Clone)]
pub(super) struct Accounts {
    directory: Arc<dyn Directory>,
    main_corp: CorpId,
}

impl Accounts {
    pub(super) fn new(directory: Arc<dyn Directory>, main_corp: CorpId) -> Self {
        Self { directory, main_corp }
    }

    /// Checks the form of both IDs; the corporation defaults to the main one.
    pub(super) fn parse(&self, employee_id: &str, corp_id: Option<&str>) -> Result<AccountId, AdminError> {
        if !EmployeeId::is_well_formed(employee_id) {
            return Err(AdminError::InvalidEmployeeId(employee_id.to_owned()));
        }
        let corp_id = match corp_id {
            None => self.main_corp.clone(),
            Some(corp_id) if CorpId::is_well_formed(corp_id) => CorpId::new(corp_id),
            Some(corp_id) => return Err(AdminError::InvalidCorpId(corp_id.to_owned())),
        };
        Ok(AccountId { corp_id, employee_id: EmployeeId::new(employee_id) })
    }

    /// The employee of this account.
    pub(super) async fn employee(&self, account: Account<'_>) -> Result<Employee, AdminError> {
        match self.directory.employee(account.corp_id, account.employee_id).await? {
            Some(employee) => Ok(employee),
            None => Err(self.not_found(account).await),
        }
    }

    /// The error for an employee who does not exist, with a suggestion if only the spelling differs.
    pub(super) async fn not_found(&self, account: Account<'_>) -> AdminError {
        let similar = self.similar(account).await.ok().flatten();
        AdminError::NoSuchEmployee { employee_id: account.employee_id.clone(), similar }
    }

    /// An employee whose ID is another spelling of this one.
    pub(super) async fn similar(&self, account: Account<'_>) -> Result<Option<EmployeeId>, DirectoryError> {
        let found = self.directory.by_name(account.corp_id, account.employee_id.as_str()).await?;
        let similar = found.map(|(employee, _)| employee.employee_id);
        Ok(similar.filter(|similar| similar != account.employee_id))
    }
}

/// The account of an employee.
pub(super) fn account_of(employee: &Employee) -> Account<'_> {
    Account { corp_id: &employee.corp_id, employee_id: &employee.employee_id }
}

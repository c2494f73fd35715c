//! `/api/admin/links`: links of connected corporations' members to employees of the administrator's corporation.

use serde::{Deserialize, Serialize};

use super::admin::{AccountUpdate, ListPage};
use super::request::Query;
use crate::admin::links::{LinkRow, NewLink};
use crate::admin::{Actor, Admin};
use crate::directory::links::LinkQuery;
use crate::domain::link::{LinkState, PlatformAccount};
use crate::error::{BadRequest, Error};
use crate::sessions::CachedSession;

/// A page of links.
#[derive(Debug, Serialize)]
pub struct LinkList {
    items: Vec<LinkRow>,
    total: usize,
    page: usize,
    page_size: usize,
}

/// The link to approve or add.
#[derive(Debug, Deserialize)]
pub struct LinkBody {
    corp_id: String,
    platform_user: String,
    employee_id: String,
}

/// Lists links to employees of the caller's corporation, paged and filtered by state, employee or connected corporation.
pub async fn list(admin: &Admin, caller: &CachedSession, query: &Query) -> Result<LinkList, Error> {
    let page = ListPage::of(query)?;
    let state = match query.optional("state")? {
        None => None,
        Some(word) => Some(LinkState::parse(word).ok_or(BadRequest::Parameter("state"))?),
    };
    let links = admin
        .links
        .list(LinkQuery {
            employee_corp_id: Some(&caller.session.corp_id),
            employee_id: query.optional("employee_id")?,
            corp_id: query.optional("corp_id")?,
            state,
            skip: page.skip(),
            limit: page.size,
        })
        .await?;
    Ok(LinkList { items: links.items, total: links.total, page: page.number, page_size: page.size })
}

/// Approves or adds the link of a platform account to an employee of the caller's corporation.
pub async fn approve(admin: &Admin, caller: &CachedSession, body: LinkBody) -> Result<AccountUpdate, Error> {
    let platform_account = account(admin, &body.corp_id, &body.platform_user)?;
    let employee = admin.colleague(&caller.session, &body.employee_id)?;
    let link = NewLink { account: &platform_account, employee: employee.as_account() };
    Ok(admin.links.add(Actor::Administrator(&caller.session), link).await?.into())
}

/// Refuses a pending link or removes an approved one, which ends its sessions.
pub async fn remove(admin: &Admin, caller: &CachedSession, query: &Query) -> Result<AccountUpdate, Error> {
    let platform_account = account(admin, query.required("corp_id")?, query.required("platform_user")?)?;
    let actor = Actor::Administrator(&caller.session);
    Ok(admin.links.delete(actor, &platform_account, &caller.session.corp_id).await?.into())
}

fn account(admin: &Admin, corp_id: &str, platform_user: &str) -> Result<PlatformAccount, Error> {
    Ok(admin.links.parse(corp_id, platform_user)?)
}

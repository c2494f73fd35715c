//! `GET /api/auth/signin`

use http::StatusCode;

use super::incoming::Query;
use crate::config::Client;
use crate::domain::language::Language;
use crate::error::{BadRequest, Error};
use crate::pages;
use crate::reply::Reply;
use crate::signin::SignIn;

/// The sign-in page of a client; the employees' one when none is named.
pub fn page(signin: &SignIn, query: &Query, language: Language) -> Result<Reply, Error> {
    let client = match query.optional("client")? {
        None => Client::H5,
        Some(name) => Client::named(name).ok_or(BadRequest::Parameter("client"))?,
    };
    let home = signin.settings().clients.url(client);
    Ok(Reply::page(StatusCode::OK, language, pages::sign_in(language, client, home.as_str())))
}

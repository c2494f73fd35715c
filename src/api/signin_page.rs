//! `GET /api/auth/signin`

use http::StatusCode;

use super::incoming::Incoming;
use crate::domain::client::Client;
use crate::domain::language::Language;
use crate::error::{BadRequest, Error};
use crate::pages;
use crate::reply::Reply;
use crate::signin::SignIn;

/// The sign-in page of a client; the employees' one when none is named. `lang` is a person's own choice of language,
/// over what the browser asks for.
pub fn page(signin: &SignIn, incoming: &Incoming, negotiated: Language) -> Result<Reply, Error> {
    let client = match incoming.query.optional("client")? {
        None => Client::H5,
        Some(name) => Client::named(name).ok_or(BadRequest::Parameter("client"))?,
    };
    let language = match incoming.query.optional("lang")? {
        None => negotiated,
        Some(tag) => Language::tagged(tag).ok_or(BadRequest::Parameter("lang"))?,
    };
    let settings = signin.settings();
    let home = settings.clients.url(client).as_str();
    let html = pages::sign_in(language, client, home, &incoming.device.user_agent, settings.platform);
    Ok(Reply::page(StatusCode::OK, language, html))
}

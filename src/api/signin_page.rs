//! `GET /api/auth/signin`

use http::StatusCode;

use super::error_page::error_page;
use super::request::ApiRequest;
use super::site::Site;
use crate::domain::client::Client;
use crate::domain::language::Language;
use crate::error::{BadRequest, Error};
use crate::pages;
use crate::pipeline::Arrival;
use crate::reply::Reply;

/// The sign-in page of a web client, h5 by default, or the page that says what is wrong with the address.
pub fn page(site: &Site, request: &ApiRequest, arrival: &Arrival) -> Reply {
    sign_in(site, request, arrival.language).unwrap_or_else(|error| error_page(arrival, &error))
}

/// The parameter `lang` overrides the browser's language.
fn sign_in(site: &Site, request: &ApiRequest, negotiated: Language) -> Result<Reply, Error> {
    let client = match request.query.optional("client")? {
        None => Client::H5,
        Some(name) => Client::named(name).ok_or(BadRequest::UnknownClient)?,
    };
    let language = match request.query.optional("lang")? {
        None => negotiated,
        Some(tag) => Language::tagged(tag).ok_or(BadRequest::Parameter("lang"))?,
    };
    let home = site.clients.url(client).as_str();
    let html = pages::sign_in(language, client, home, &request.device.user_agent, site.platform);
    Ok(Reply::page(StatusCode::OK, language, html))
}

//! `GET /api/auth/openapi.json`
//!
//! The description is a file, written by hand in the order of [`crate::endpoints::TABLE`]; the test
//! `tests/gateway/openapi.rs` calls every endpoint and checks its responses against it. Only what differs between
//! gateways is filled in here.

use super::site::Site;
use crate::domain::client::Client;
use crate::reply::Reply;

const DESCRIPTION: &str = include_str!("openapi.json");

/// The OpenAPI description of the gateway's own endpoints.
pub fn document(site: &Site) -> Reply {
    // These URLs come from the URL parser, which leaves nothing in them that JSON would have to escape.
    let text = DESCRIPTION
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replace("{{public_url}}", &site.public_url)
        .replace("{{h5}}", site.clients.url(Client::H5).as_str());
    Reply::json(text)
}

//! `GET /api/auth/openapi.json`
//!
//! The description is a file, written by hand in the order of [`crate::endpoints::TABLE`]; the test
//! `gateway::description` calls every endpoint and holds its answers against it. Only what differs from one gateway to
//! another is put in here.

use crate::domain::client::Client;
use crate::reply::Reply;
use crate::signin::SignIn;

const DESCRIPTION: &str = include_str!("openapi.json");

/// The description of everything that the gateway answers itself.
pub fn document(signin: &SignIn) -> Reply {
    let settings = signin.settings();
    // Addresses come from the URL parser, which leaves nothing in them that JSON would have to escape.
    let text = DESCRIPTION
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replace("{{public_url}}", &settings.public_url)
        .replace("{{h5}}", settings.clients.url(Client::H5).as_str());
    Reply::json(text)
}

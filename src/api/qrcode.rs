//! `GET /api/auth/qrcode`

use super::incoming::Incoming;
use crate::domain::client::Client;
use crate::domain::secret::random_name;
use crate::domain::ticket::BrowserId;
use crate::error::{BadRequest, Error};
use crate::reply::Cookie;
use crate::signin::SignIn;
use crate::signin::ticket::{Asker, IssuedTicket};

/// The cookie by which a browser is known again when it polls. One for all its tabs.
pub const BROWSER_COOKIE: &str = "deskgate_browser";

/// Letters of the cookie's value; about 190 bits.
const BROWSER_LETTERS: usize = 32;

/// Longer than any ticket lives, and set anew with each.
const REMEMBERED: u64 = 24 * 3600;

/// Issues a ticket; to a browser also the cookie that it must poll with. A program, which says nothing of where it
/// fetches from and brings no cookie, polls with the ticket alone.
pub async fn issue(signin: &SignIn, incoming: &Incoming) -> Result<(IssuedTicket, Option<Cookie>), Error> {
    let client = match incoming.query.optional("client")? {
        None => None,
        Some(name) => Some(Client::named(name).ok_or(BadRequest::Parameter("client"))?),
    };
    let own = incoming.cookie(BROWSER_COOKIE).filter(|value| is_ours(value));
    let browser = match (own, &incoming.fetch_site) {
        (Some(own), _) => Some(BrowserId::new(own)),
        (None, Some(_)) => Some(BrowserId::new(random_name(BROWSER_LETTERS))),
        (None, None) => None,
    };
    let asker = Asker { device: &incoming.device, browser: browser.as_ref(), client };
    let issued = signin.issue_ticket(asker).await?;
    let cookie = browser.map(|browser| Cookie {
        name: BROWSER_COOKIE.to_owned(),
        value: browser.to_string(),
        path: "/api/auth",
        max_age: REMEMBERED,
    });
    Ok((issued, cookie))
}

fn is_ours(value: &str) -> bool {
    value.len() == BROWSER_LETTERS && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

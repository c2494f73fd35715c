//! `GET /api/auth/qrcode`

use super::cookies;
use super::request::ApiRequest;
use crate::domain::client::Client;
use crate::domain::secret::random_name;
use crate::domain::ticket::BrowserId;
use crate::error::{BadRequest, Error};
use crate::reply::Cookie;
use crate::signin::tickets::{IssuedTicket, TicketRequest, Tickets};

/// Characters of a browser id; about 190 bits.
const BROWSER_ID_LENGTH: usize = 32;

/// Issues a ticket, and to a browser also the cookie that its polls must carry. A program, which sends neither
/// `Sec-Fetch-Site` nor the cookie, polls with the ticket alone.
pub async fn issue(tickets: &Tickets, request: &ApiRequest) -> Result<(IssuedTicket, Option<Cookie>), Error> {
    let client = match request.query.optional("client")? {
        None => None,
        Some(name) => Some(Client::named(name).ok_or(BadRequest::UnknownClient)?),
    };
    let known = cookies::browser_value(request).filter(|value| is_browser_id(value));
    let browser = match (known, &request.fetch_site) {
        (Some(known), _) => Some(BrowserId::new(known)),
        (None, Some(_)) => Some(BrowserId::new(random_name(BROWSER_ID_LENGTH))),
        (None, None) => None,
    };
    let ticket_request = TicketRequest { device: &request.device, browser: browser.as_ref(), client };
    let issued = tickets.issue(ticket_request).await?;
    Ok((issued, browser.as_ref().map(cookies::browser)))
}

fn is_browser_id(value: &str) -> bool {
    value.len() == BROWSER_ID_LENGTH && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

//! Renders the error page when there is no client page to redirect to.

use crate::error::Error;
use crate::pages;
use crate::pipeline::Arrival;
use crate::reply::Reply;

/// An error as a page.
pub fn error_page(arrival: &Arrival, error: &Error) -> Reply {
    let html = pages::error(arrival.language, error, arrival.request_id.as_str());
    Reply::page(error.code().status(), arrival.language, html).with_error_headers(error)
}

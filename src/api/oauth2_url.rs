//! `GET /api/auth/oauth2/url`

use serde::Serialize;

use super::cookies;
use super::request::ApiRequest;
use crate::error::{BadRequest, Error};
use crate::reply::Cookie;
use crate::signin::oauth2::Oauth2Flow;

/// The platform URL, and the page that the flow returns to.
#[derive(Debug, Serialize)]
pub struct AuthorizeUrl {
    authorize_url: String,
    redirect_uri: String,
}

/// Starts a flow that returns to `redirect_uri`. Only scripts of this site's pages may: another site that could make a
/// browser start a flow could then inject its own code into it.
pub fn start(oauth2: &Oauth2Flow, request: &ApiRequest) -> Result<(AuthorizeUrl, Vec<Cookie>), Error> {
    let redirect_uri = request.query.required("redirect_uri")?;
    let is_navigation = request.fetch_mode.as_deref() == Some("navigate");
    if is_navigation || request.fetch_site.as_deref() == Some("cross-site") {
        return Err(BadRequest::ScriptOnly.into());
    }
    let flow = oauth2.start(redirect_uri, &request.device)?;
    let cookies = cookies::start_flow(&flow, request);
    Ok((AuthorizeUrl { authorize_url: flow.authorize_url, redirect_uri: redirect_uri.to_owned() }, cookies))
}

//! Our own endpoints: reads what came, calls the endpoint's function, makes the answer. One file per
//! endpoint or small family; none of them knows of status codes, headers or JSON.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora_proxy::Session as Exchange;

use crate::admin::Admin;
use crate::config::LimitsConfig;
use crate::endpoints::Endpoint;
use crate::error::{BadRequest, Error};
use crate::pages;
use crate::pipeline::authorize::check_own;
use crate::pipeline::{Arrival, Caller, OwnCall};
use crate::reply::Reply;
use crate::sessions::CachedSession;
use crate::signin::SignIn;

mod body;

mod incoming;

pub mod admin;

pub mod agents;

pub mod bind;

pub mod dev;

pub mod jwks;

pub mod logout;

pub mod me;

pub mod oauth2_callback;

pub mod oauth2_url;

pub mod openapi;

pub mod operations;

pub mod otp;

pub mod qr_confirm;

pub mod qrcode;

pub mod scan_status;

pub mod sessions;

pub mod signin_page;

pub mod switch_role;

pub mod verify;

use incoming::Incoming;
pub use operations::Operations;

/// What the endpoints work with.
pub struct Api {
    /// The rules of signing in.
    pub signin: Arc<SignIn>,
    /// Administration of roles, sessions and devices.
    pub admin: Arc<Admin>,
    /// The process's own state.
    pub operations: Arc<Operations>,
    /// How much of a body is read.
    pub limits: LimitsConfig,
    /// Whether cookies are kept off plain HTTP.
    pub secure_cookies: bool,
}

/// Answers one call. No `_` arm: an endpoint without a handler does not compile.
pub async fn answer(api: &Api, call: &OwnCall, exchange: &mut Exchange, arrival: &Arrival) -> Result<Reply, Error> {
    let incoming = Incoming::of(exchange.req_header().as_ref(), arrival);
    let reply = match call.route.endpoint {
        Endpoint::Qrcode => qrcode::issue(&api.signin, &incoming).await.map(|(issued, cookie)| {
            let reply = Reply::data(arrival, &issued);
            cookie.iter().fold(reply, |reply, cookie| reply.cookie(cookie, api.secure_cookies))
        }),
        Endpoint::ScanStatus => {
            let query = scan_status::Poll::of(&incoming.query)?;
            data(arrival, scan_status::poll(&api.signin, &query, &incoming).await)
        }
        Endpoint::Oauth2Url => {
            let redirect_uri = incoming.query.required("redirect_uri")?;
            let (url, begun) = oauth2_url::build(&api.signin, redirect_uri, &incoming)?;
            let cookies = oauth2_url::cookies(&begun, &incoming, api.signin.settings().flow_lifetime);
            let reply = Reply::data(arrival, &url);
            Ok(cookies.iter().fold(reply, |reply, cookie| reply.cookie(cookie, api.secure_cookies)))
        }
        Endpoint::Oauth2Callback => Ok(oauth2_callback::answer(api, &incoming, arrival).await),
        Endpoint::ConfirmPage => Ok(qr_confirm::page(&api.signin, &incoming, arrival).await),
        Endpoint::Confirm => {
            let form = body::form(&read(api, exchange).await?, &incoming)?;
            Ok(qr_confirm::answer(&api.signin, &incoming, &form, arrival).await)
        }
        Endpoint::Verify => {
            let request = body::json(&read(api, exchange).await?, &incoming)?;
            data(arrival, verify::verify(&api.signin, request).await)
        }
        Endpoint::Logout => {
            // No second look: what has ended meanwhile may well end.
            read(api, exchange).await?;
            data(arrival, logout::logout(&api.signin, known(&call.caller)?, arrival.language).await)
        }
        Endpoint::Me => data(arrival, me::me(known(&call.caller)?)),
        Endpoint::SwitchRole => {
            let (body, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            let request = body::json(&body, &incoming)?;
            data(arrival, switch_role::switch_role(&api.signin, &caller, request, arrival.language).await)
        }
        Endpoint::Bind => {
            let request = body::json(&read(api, exchange).await?, &incoming)?;
            let bound = data(arrival, bind::bind(&api.signin, request, &incoming).await);
            bound.map(|reply| reply.cookie(&bind::spent_proof(), api.secure_cookies))
        }
        Endpoint::BindPage => Ok(bind::page(&api.signin, &incoming, arrival)),
        Endpoint::Sessions => data(arrival, sessions::list(&api.signin, known(&call.caller)?).await),
        Endpoint::EndOtherSessions => {
            let (_, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            data(arrival, sessions::end_others(&api.signin, &caller).await)
        }
        Endpoint::EndSession => {
            let path = exchange.req_header().uri.path().to_owned();
            let id = call.route.parameter(&path).unwrap_or_default();
            let (_, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            data(arrival, sessions::end(&api.signin, &caller, id).await)
        }
        Endpoint::UserRoles => data(arrival, admin::user_roles(&api.admin, &incoming.query).await),
        Endpoint::GrantRole => {
            let (body, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            let body = body::json(&body, &incoming)?;
            data(arrival, admin::grant_role(&api.admin, &caller, body).await)
        }
        Endpoint::TakeRole => {
            let (body, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            // Many clients send no body with a DELETE.
            let named = if body.is_empty() {
                admin::UserRole::of(&incoming.query)?
            } else {
                body::json::<admin::UserRole>(&body, &incoming)?.agreeing_with(&incoming.query)?
            };
            data(arrival, admin::take_role(&api.admin, &caller, named).await)
        }
        Endpoint::EndSessionsOf => {
            let (_, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            data(arrival, admin::end_sessions(&api.admin, &caller, &incoming.query).await)
        }
        Endpoint::ResetOtp => {
            let (_, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            data(arrival, admin::reset_otp(&api.admin, &caller, &incoming.query).await)
        }
        Endpoint::AgentLogin => {
            let body = body::json(&read(api, exchange).await?, &incoming)?;
            data(arrival, agents::login(&api.signin, body, &incoming.device).await)
        }
        Endpoint::AgentPassword => {
            let (body, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            let body = body::json(&body, &incoming)?;
            data(arrival, agents::password(&api.signin, &caller, body, arrival.language).await)
        }
        Endpoint::OtpSetup => {
            let (_, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            data(arrival, otp::setup(&api.signin, &caller).await)
        }
        Endpoint::OtpBind => {
            let (body, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            let body = body::json(&body, &incoming)?;
            data(arrival, otp::bind(&api.signin, &caller, body, &incoming.device).await)
        }
        Endpoint::OtpVerify => {
            let (body, caller) = read_body_and_reauthorize(api, call, exchange).await?;
            let body = body::json(&body, &incoming)?;
            data(arrival, otp::verify(&api.signin, &caller, body).await)
        }
        Endpoint::OtpStatus => data(arrival, otp::status(&api.signin, known(&call.caller)?).await),
        Endpoint::SignInPage => signin_page::page(&api.signin, &incoming, arrival.language),
        Endpoint::PageStyle => Ok(Reply::asset("text/css; charset=utf-8", pages::STYLE)),
        Endpoint::SignInScript => Ok(Reply::asset("text/javascript; charset=utf-8", pages::SIGN_IN_SCRIPT)),
        Endpoint::BindScript => Ok(Reply::asset("text/javascript; charset=utf-8", pages::BIND_SCRIPT)),
        Endpoint::Ready => Ok(operations::ready(&api.operations, &api.signin, arrival).await),
        Endpoint::Version => data(arrival, Ok(operations::version())),
        Endpoint::Jwks => Ok(jwks::document(&api.signin)),
        Endpoint::OpenApi => Ok(openapi::document(&api.signin)),
        Endpoint::DevLogin => {
            // Refused before anything is read: outside development mode the route does not exist.
            api.signin.development_only()?;
            let request = body::json(&read(api, exchange).await?, &incoming)?;
            data(arrival, dev::login(&api.signin, request, &incoming.device).await)
        }
        Endpoint::DevUsers => data(arrival, dev::users(&api.signin).await),
        Endpoint::DevHealth => data(arrival, dev::health(&api.signin)),
    };
    reply.map_err(|error| error.within(call.route.doing))
}

fn data<T: serde::Serialize>(arrival: &Arrival, result: Result<T, Error>) -> Result<Reply, Error> {
    result.map(|data| Reply::data(arrival, &data))
}

/// The caller of an endpoint that needs one; the pipeline has seen to it that there is one.
fn known(caller: &Caller) -> Result<&Arc<CachedSession>, Error> {
    match caller {
        Caller::SignedIn(known) => Ok(known),
        Caller::Anonymous => Err(Error::NoCredentials),
    }
}

async fn read(api: &Api, exchange: &mut Exchange) -> Result<Bytes, Error> {
    read_body(exchange, api.limits.body_bytes, api.limits.body_deadline.get()).await
}

/// Reads the body, also one that nobody looks at, so that the connection can go on; and then looks at the caller once
/// more: bodies may take their time, and whoever was let in before may have been thrown out meanwhile.
async fn read_body_and_reauthorize(
    api: &Api,
    call: &OwnCall,
    exchange: &mut Exchange,
) -> Result<(Bytes, Arc<CachedSession>), Error> {
    let body = read(api, exchange).await?;
    let known = api.signin.still(known(&call.caller)?).await?;
    check_own(call.route.access, &known.session, api.signin.now())?;
    Ok((body, known))
}

/// Reads a whole body, up to a size and a time. The engine itself limits neither.
async fn read_body(exchange: &mut Exchange, most: usize, total: Duration) -> Result<Bytes, Error> {
    let length = exchange.get_header("content-length").and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > most) {
        return Err(Error::BodyTooLarge);
    }
    let keepalive = exchange.get_keepalive();
    if exchange.get_header("expect").is_some() {
        exchange.write_continue_response().await.map_err(|_| BadRequest::Framing)?;
        // Writing the 100 has just switched keep-alive off.
        exchange.set_keepalive(keepalive);
    }
    let deadline = tokio::time::Instant::now() + total;
    let mut body = Vec::new();
    loop {
        match tokio::time::timeout_at(deadline, exchange.read_request_body()).await {
            Err(_) => return Err(Error::RequestTimeout),
            Ok(Err(_)) => return Err(BadRequest::Framing.into()),
            Ok(Ok(None)) => return Ok(body.into()),
            Ok(Ok(Some(piece))) if body.len() + piece.len() > most => return Err(Error::BodyTooLarge),
            Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
        }
    }
}

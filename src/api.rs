//! The gateway's own endpoints: parses the request, calls the endpoint's function and builds the reply.
//!
//! Each endpoint or small family has a file with typed bodies in and typed data out; status, headers and
//! JSON are written here, except for pages and redirects. docs/architecture.md says how to add an endpoint.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::Admin;
use crate::config::LimitsConfig;
use crate::domain::clock::Clock;
use crate::domain::own_cookie::CookieScope;
use crate::endpoints::Endpoint;
use crate::error::Error;
use crate::pages;
use crate::pipeline::authorize::check_own;
use crate::pipeline::{Arrival, Caller, OwnCall};
use crate::reply::{Cookie, Reply};
use crate::sessions::CachedSession;
use crate::signin::SignInServices;
pub use downstream::Downstream;
use read_body::read_body;
use ready::Readiness;
use request::ApiRequest;
use site::Site;

// The endpoints, in the order of the table.

mod qrcode;

mod scan_status;

mod oauth2_url;

mod oauth2_callback;

mod qr_confirm;

mod verify;

mod logout;

mod me;

mod switch_role;

mod bind;

mod sessions;

mod admin;

mod links;

mod agents;

mod otp;

mod signin_page;

pub mod ready;

mod version;

mod jwks;

mod openapi;

mod dev;

// What the endpoints share.

mod body;

mod cookies;

mod downstream;

mod error_page;

mod read_body;

mod request;

pub mod site;

/// What the endpoints work with.
pub struct Api {
    /// The sign-in services.
    pub signin: Arc<SignInServices>,
    /// Administration of roles, sessions and devices.
    pub admin: Arc<Admin>,
    /// The clock.
    pub clock: Clock,
    /// Whether the process is draining.
    pub readiness: Arc<Readiness>,
    /// Public addresses, for the pages and the description.
    pub site: Site,
    /// The limits in force, for request bodies.
    pub limits: Arc<ArcSwap<LimitsConfig>>,
    /// How cookies are named and restricted.
    pub cookie_scope: CookieScope,
}

/// Answers a call of one of the gateway's own endpoints.
pub async fn answer(api: &Api, call: &OwnCall, client: &mut dyn Downstream, arrival: &Arrival) -> Result<Reply, Error> {
    let request = ApiRequest::of(client.head(), arrival, api.cookie_scope);
    let mut exchange = ApiExchange { api, call, client, arrival };
    let answered = match call.route.endpoint {
        // Thousands of sign-in pages wait for their scan at once: they must not hold the memory of the largest endpoint.
        Endpoint::ScanStatus => exchange.scan_status(&request).await,
        _ => Box::pin(dispatch(&mut exchange, &request)).await,
    };
    answered.map_err(|error| error.with_operation(call.route.operation))
}

/// Calls the function of an endpoint. No `_` arm: an endpoint without a function does not compile.
async fn dispatch(call: &mut ApiExchange<'_>, request: &ApiRequest) -> Result<Reply, Error> {
    let (api, arrival) = (call.api, call.arrival);
    let (signin, language) = (&api.signin, arrival.language);
    Ok(match call.call.route.endpoint {
        Endpoint::Qrcode => {
            let (ticket, cookie) = qrcode::issue(&signin.tickets, request).await?;
            call.with_cookies(call.data(&ticket), cookie)
        }
        Endpoint::ScanStatus => call.scan_status(request).await?,
        Endpoint::Oauth2Url => {
            let (url, cookies) = oauth2_url::start(&signin.oauth2, request)?;
            call.with_cookies(call.data(&url), cookies)
        }
        Endpoint::Oauth2Callback => {
            let (reply, cookie) = oauth2_callback::complete(&signin.oauth2, request, arrival).await;
            call.with_cookies(reply, cookie)
        }
        Endpoint::ConfirmPage => qr_confirm::page(&signin.tickets, request, arrival).await,
        Endpoint::Confirm => {
            let form = body::form(&call.read_body().await?, request)?;
            qr_confirm::submit(&signin.tickets, request, &form, arrival).await
        }
        Endpoint::Verify => {
            let body = call.json(request).await?;
            call.data(&verify::verify(&signin.sessions, body).await?)
        }
        Endpoint::Logout => {
            // The caller is not reauthorized: a session that has ended meanwhile may be logged out.
            call.read_body().await?;
            call.data(&logout::logout(&signin.sessions, call.caller()?, language).await?)
        }
        Endpoint::Me => call.data(&me::me(call.caller()?)),
        Endpoint::SwitchRole => {
            let (caller, body) = call.caller_and_json(request).await?;
            call.data(&switch_role::switch_role(&signin.sessions, &caller, body, language).await?)
        }
        Endpoint::Bind => {
            let body = call.json(request).await?;
            let issued = bind::bind(&signin.binding, body, request).await?;
            call.with_cookies(call.data(&issued), [cookies::remove_bind_proof()])
        }
        Endpoint::BindStatus => call.data(&bind::status(&signin.binding, request).await?),
        Endpoint::BindPage => bind::page(&signin.binding, request, arrival).await,
        Endpoint::Sessions => call.data(&sessions::list(&signin.sessions, call.caller()?).await?),
        Endpoint::EndOtherSessions => {
            let (caller, _) = call.read_body_and_reauthorize().await?;
            call.data(&sessions::end_others(&signin.sessions, &caller).await?)
        }
        Endpoint::EndSession => {
            let id = call.path_parameter();
            let (caller, _) = call.read_body_and_reauthorize().await?;
            call.data(&sessions::end(&signin.sessions, &caller, &id).await?)
        }
        Endpoint::UserRoles => call.data(&admin::user_roles(&api.admin, call.caller()?, &request.query).await?),
        Endpoint::GrantRole => {
            let (caller, body) = call.caller_and_json(request).await?;
            call.data(&admin::grant_role(&api.admin, &caller, body).await?)
        }
        Endpoint::TakeRole => {
            let (caller, body) = call.read_body_and_reauthorize().await?;
            // Many clients send no body with a DELETE.
            let assignment = if body.is_empty() {
                admin::UserRole::of(&request.query)?
            } else {
                body::json::<admin::UserRole>(&body, request)?.agreeing_with(&request.query)?
            };
            call.data(&admin::take_role(&api.admin, &caller, assignment).await?)
        }
        Endpoint::EndSessionsOf => {
            let (caller, _) = call.read_body_and_reauthorize().await?;
            call.data(&admin::end_sessions(&api.admin, &caller, &request.query).await?)
        }
        Endpoint::ResetOtp => {
            let (caller, _) = call.read_body_and_reauthorize().await?;
            call.data(&admin::reset_otp(&api.admin, &caller, &request.query).await?)
        }
        Endpoint::Links => call.data(&links::list(&api.admin, call.caller()?, &request.query).await?),
        Endpoint::ApproveLink => {
            let (caller, body) = call.caller_and_json(request).await?;
            call.data(&links::approve(&api.admin, &caller, body).await?)
        }
        Endpoint::RemoveLink => {
            let (caller, _) = call.read_body_and_reauthorize().await?;
            call.data(&links::remove(&api.admin, &caller, &request.query).await?)
        }
        Endpoint::AgentLogin => {
            let body = call.json(request).await?;
            call.data(&agents::login(&signin.agents, body, &request.device).await?)
        }
        Endpoint::AgentPassword => {
            let (caller, body) = call.caller_and_json(request).await?;
            call.data(&agents::set_password(&signin.agents, &caller, body, language).await?)
        }
        Endpoint::OtpSetup => {
            let (caller, _) = call.read_body_and_reauthorize().await?;
            call.data(&otp::set_up(&signin.otp, &caller).await?)
        }
        Endpoint::OtpBind => {
            let (caller, body) = call.caller_and_json(request).await?;
            call.data(&otp::bind(&signin.otp, &caller, body, &request.device).await?)
        }
        Endpoint::OtpVerify => {
            let (caller, body) = call.caller_and_json(request).await?;
            call.data(&otp::verify(&signin.otp, &caller, body).await?)
        }
        Endpoint::OtpStatus => call.data(&otp::status(&signin.otp, call.caller()?).await?),
        Endpoint::SignInPage => signin_page::page(&api.site, request, arrival),
        Endpoint::PageStyle => Reply::asset("text/css; charset=utf-8", pages::STYLE),
        Endpoint::SignInScript => Reply::asset("text/javascript; charset=utf-8", pages::SIGN_IN_SCRIPT),
        Endpoint::BindScript => Reply::asset("text/javascript; charset=utf-8", pages::BIND_SCRIPT),
        Endpoint::Ready => ready::ready(&api.readiness, &signin.backends, arrival).await,
        Endpoint::Version => call.data(&version::version()),
        Endpoint::Jwks => jwks::document(&signin.sessions),
        Endpoint::OpenApi => openapi::document(&api.site),
        Endpoint::DevLogin => {
            // Checked before the body is read: outside development mode the route does not exist.
            signin.development.check_enabled()?;
            let body = call.json(request).await?;
            call.data(&dev::login(&signin.development, body, &request.device).await?)
        }
        Endpoint::DevUsers => call.data(&dev::users(&signin.development).await?),
        Endpoint::DevHealth => call.data(&dev::health(&signin.development)?),
    })
}

/// A call in progress: gives endpoints their caller and body, and puts their data into a reply.
struct ApiExchange<'a> {
    api: &'a Api,
    call: &'a OwnCall,
    client: &'a mut dyn Downstream,
    arrival: &'a Arrival,
}

impl ApiExchange<'_> {
    async fn scan_status(&mut self, request: &ApiRequest) -> Result<Reply, Error> {
        let status = scan_status::poll(&self.api.signin.tickets, request, self.client.disconnected()).await?;
        Ok(self.data(&status))
    }

    /// The caller of an endpoint that requires one; the pipeline has already checked that there is one.
    fn caller(&self) -> Result<&Arc<CachedSession>, Error> {
        match &self.call.caller {
            Caller::SignedIn(caller) => Ok(caller),
            Caller::Anonymous => Err(Error::NoCredentials),
        }
    }

    /// The value of the route's `{…}` in the path.
    fn path_parameter(&self) -> String {
        let path = self.client.head().uri.path();
        self.call.route.parameter(path).unwrap_or_default().to_owned()
    }

    async fn read_body(&mut self) -> Result<Bytes, Error> {
        let (most, deadline) = {
            let limits = self.api.limits.load();
            (limits.body_bytes, limits.body_deadline.get())
        };
        read_body(self.client, most, deadline).await
    }

    async fn json<T: DeserializeOwned>(&mut self, request: &ApiRequest) -> Result<T, Error> {
        body::json(&self.read_body().await?, request)
    }

    /// Reads the body, also one that is not used, so that the connection stays usable, and then checks the caller
    /// again: a slow body leaves time for the session to be revoked.
    async fn read_body_and_reauthorize(&mut self) -> Result<(Arc<CachedSession>, Bytes), Error> {
        let body = self.read_body().await?;
        let caller = self.api.signin.sessions.reload(self.caller()?).await?;
        check_own(self.call.route.access, &caller.session, self.api.clock.now())?;
        Ok((caller, body))
    }

    async fn caller_and_json<T: DeserializeOwned>(
        &mut self,
        request: &ApiRequest,
    ) -> Result<(Arc<CachedSession>, T), Error> {
        let (caller, body) = self.read_body_and_reauthorize().await?;
        Ok((caller, body::json(&body, request)?))
    }

    fn data(&self, data: &impl Serialize) -> Reply {
        Reply::data(self.arrival, data)
    }

    fn with_cookies(&self, reply: Reply, cookies: impl IntoIterator<Item = Cookie>) -> Reply {
        cookies.into_iter().fold(reply, |reply, cookie| reply.cookie(&cookie, self.api.cookie_scope))
    }
}

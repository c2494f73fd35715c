//! Sign-in by redirect: starts flows and completes them at the platform's callback. The callback of a scanned QR code
//! arrives here, too.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::attempt::Attempt;
use super::bind_proofs::BindProofs;
use super::codes::AuthorizationCodes;
use super::identity_provider::{IdentityProvider, PlatformUser, UnregisteredMember};
use super::issuer::{SessionIssuer, SignInGrant};
use super::login_log::LoginLog;
use super::roles::Roles;
use super::tickets::Tickets;
use super::tickets::phone::ScanResult;
use crate::config::{ClientsConfig, FlowCookie};
use crate::domain::client::Client;
use crate::domain::device::ClientDevice;
use crate::domain::employee::Employee;
use crate::domain::network::Network;
use crate::domain::role;
use crate::domain::secret::Secret;
use crate::domain::ticket::{ScanId, Scanner};
use crate::error::{BadRequest, Error, Operation};
use crate::platform::{AuthorizeRequest, Consent};
use callback::{Callback, CallbackResult, FlowKind, STATE, error_word};
pub(super) use callback_dedup::CallbackDedup;
use callback_dedup::CallbackTurn;
use flow::{Flow, FlowCookies, client_of};
use stored_result::StoredResult;

pub mod callback;

mod callback_dedup;

pub(super) mod flow;

mod stored_result;

/// A flow that was just started.
#[derive(Debug)]
pub struct StartedFlow {
    /// The platform URL for the browser.
    pub authorize_url: String,
    /// Part of the cookie's name.
    pub nonce: String,
    /// The cookie's value.
    pub signed: String,
    /// How long the flow may take.
    pub lifetime: Duration,
}

/// Sign-in by redirect.
pub struct Oauth2Flow {
    pub(super) provider: Arc<IdentityProvider>,
    pub(super) codes: Arc<AuthorizationCodes>,
    pub(super) tickets: Arc<Tickets>,
    pub(super) roles: Roles,
    pub(super) issuer: Arc<SessionIssuer>,
    pub(super) login_log: Arc<LoginLog>,
    pub(super) bind_proofs: Arc<BindProofs>,
    pub(super) flow_cookies: FlowCookies,
    pub(super) dedup: CallbackDedup,
    pub(super) clients: ClientsConfig,
    pub(super) public_url: String,
    pub(super) flow_cookie: FlowCookie,
}

impl Oauth2Flow {
    /// Starts a flow that returns to `redirect_uri`, which must be under one of the web clients' URLs.
    pub fn start(&self, redirect_uri: &str, device: &ClientDevice) -> Result<StartedFlow, Error> {
        let client = client_of(&self.clients, redirect_uri).ok_or(BadRequest::RedirectUri)?;
        self.provider.check_available()?;
        let (flow, signed) = self.flow_cookies.start(redirect_uri, client, device);
        let request = AuthorizeRequest { redirect_uri, state: STATE };
        Ok(StartedFlow {
            authorize_url: self.provider.authorize_url(request),
            nonce: flow.nonce,
            signed,
            lifetime: self.flow_cookies.lifetime,
        })
    }

    /// Completes a flow. A repeated callback gets the result of the first.
    pub async fn callback(&self, callback: Callback<'_>, device: &ClientDevice) -> CallbackResult {
        let network = Network::of_text(&device.address);
        let mut flows = self.flow_cookies.verify(callback.flows, device);
        if self.is_from_foreign_page(&callback) {
            // Another site's page sent the browser here, perhaps with an attacker's code.
            flows.clear();
        }
        let page = callback.referer.map(|referer| referer.split(['?', '#']).next().unwrap_or_default());
        let kind = match FlowKind::of(callback.state) {
            // The platform sends the phone here itself; a page of ours would only pass on a redirect's code.
            FlowKind::Scan(_) if callback.fetch_site == Some("same-origin") => FlowKind::Unknown,
            kind => kind,
        };
        let (code, word, fault) = match self.provider.consent(callback.parameter) {
            // Without a state of ours, a missing code does not show that anyone declined.
            Consent::Granted { .. } | Consent::Denied if kind == FlowKind::Unknown => {
                ("", "invalid_state", BadRequest::Parameter("state"))
            }
            Consent::Granted { code } => (code, "", BadRequest::SignInCode),
            Consent::Denied if matches!(kind, FlowKind::Scan(_)) => ("", "access_denied", BadRequest::ScanDeclined),
            Consent::Denied => ("", "access_denied", BadRequest::SignInDeclined),
            Consent::Failed => ("", "platform_error", BadRequest::SignInFailed),
        };
        let from_page = || flows.iter().rfind(|flow| Some(flow.page()) == page);
        let likely = from_page().or_else(|| flows.last()).filter(|_| kind == FlowKind::Redirect).cloned();
        if code.is_empty() {
            let error = Error::from(fault);
            self.login_log.record_refusal(&kind.attempt(likely.as_ref(), device), &error).await;
            if let (FlowKind::Scan(scan_id), "access_denied") = (kind, word) {
                self.refuse_scan(&ScanId::new(scan_id)).await;
            }
            return CallbackResult::Failed { to: likely.map(|flow| flow.redirect_uri), word, error };
        }
        let flow = match kind {
            FlowKind::Redirect => self.dedup.choose_flow(flows, page, code, network).await,
            _ => Ok(None),
        };
        match flow {
            Ok(flow) => self.complete_once(code, kind, flow.as_ref(), callback.state, device).await,
            Err(error) => self.refuse(&kind.attempt(likely.as_ref(), device), likely.as_ref(), error).await,
        }
    }

    /// Completes a callback, or gets the result of the request that did.
    async fn complete_once(
        &self,
        code: &str,
        kind: FlowKind<'_>,
        flow: Option<&Flow>,
        state: Option<&str>,
        device: &ClientDevice,
    ) -> CallbackResult {
        let network = Network::of_text(&device.address);
        // The flow distinguishes the browser that repeats its callback from another client that got hold of the URL;
        // without a flow the device has to.
        let client = match flow {
            Some(flow) => [flow.nonce.as_str(), ""],
            None => [device.address.as_str(), &device.user_agent],
        };
        let key = [code, state.unwrap_or_default(), client[0], client[1]];
        let refused = |error| async move { self.refuse(&kind.attempt(flow, device), flow, error).await };
        let pending = match self.dedup.begin(&key, network).await {
            Ok(CallbackTurn::First(pending)) => pending,
            Ok(CallbackTurn::Repeated(stored)) => match self.repeat(stored).await {
                Ok(result) => return result,
                Err(error) => return refused(error).await,
            },
            Err(error) => return refused(error).await,
        };
        let result = self.complete(code, kind, flow, device).await;
        match StoredResult::of(&result) {
            Some(stored) => {
                pending.settle(&stored).await;
                if let (true, Some(flow)) = (stored.is_success(), flow) {
                    self.dedup.prove_flow(flow, network).await;
                }
            }
            // The code is still unused, so a repeated request may try it again.
            None => pending.release().await,
        }
        result
    }

    /// Records a failed attempt and leads back to the page of its flow.
    async fn refuse(&self, attempt: &Attempt<'_>, flow: Option<&Flow>, error: Error) -> CallbackResult {
        self.login_log.record_refusal(attempt, &error).await;
        failed(flow.map(|flow| flow.redirect_uri.clone()), error)
    }

    /// The result that an earlier request of the same callback got.
    async fn repeat(&self, stored: StoredResult) -> Result<CallbackResult, Error> {
        Ok(match stored {
            StoredResult::SignedIn { to, session, expires_in, flow } => match self.issuer.mint_again(&session).await? {
                Some(token) => CallbackResult::SignedIn { to, session, token, expires_in, flow },
                None => failed(Some(to), BadRequest::SignInCode.into()),
            },
            StoredResult::Scanned { scan_id, confirm, lifetime } => {
                CallbackResult::Scanned(ScanResult::NeedsConfirmation { scan_id, confirm, lifetime })
            }
            StoredResult::Confirmed => CallbackResult::Scanned(ScanResult::Confirmed),
            StoredResult::BindFirst { proof, lifetime } => {
                CallbackResult::BindFirst { proof: Secret::new(proof), lifetime }
            }
            StoredResult::Failed { to, refusal } => failed(to, refusal.into_error()),
        })
    }

    /// Whether a page of another site sent the browser to the callback.
    fn is_from_foreign_page(&self, callback: &Callback<'_>) -> bool {
        let clients = || Client::ALL.into_iter().map(|client| self.clients.url(client));
        let own = Url::parse(&self.public_url).ok();
        let one_host = clients().all(|client| own.as_ref().is_some_and(|own| own.host() == client.host()));
        let foreign_page = callback
            .referer
            .and_then(|referer| Url::parse(referer).ok())
            .is_some_and(|page| clients().chain(&own).all(|known| known.origin() != page.origin()));
        foreign_page || (one_host && callback.fetch_site == Some("cross-site"))
    }

    /// Exchanges the code and records the attempt.
    async fn complete(
        &self,
        code: &str,
        kind: FlowKind<'_>,
        flow: Option<&Flow>,
        device: &ClientDevice,
    ) -> CallbackResult {
        let mut attempt = kind.attempt(flow, device);
        let result = match self.codes.claim(code, kind.code_use(flow), device).await {
            Ok(()) => self.exchange(code, kind, flow, &mut attempt).await,
            Err(refusal) => Err(refusal),
        };
        match result {
            Ok(result) => {
                if let CallbackResult::BindFirst { .. } = &result {
                    self.login_log.record_unbound(&attempt).await;
                }
                result
            }
            Err(error) => self.refuse(&attempt, flow, error.with_operation(Operation::Callback)).await,
        }
    }

    async fn exchange(
        &self,
        code: &str,
        kind: FlowKind<'_>,
        flow: Option<&Flow>,
        attempt: &mut Attempt<'_>,
    ) -> Result<CallbackResult, Error> {
        let FlowKind::Scan(scan_id) = kind else { return self.complete_redirect(code, flow, attempt).await };
        let scan_id = ScanId::new(scan_id);
        let result = self.complete_scan(code, &scan_id, attempt).await;
        if let Ok(CallbackResult::BindFirst { .. }) | Err(Error::Forbidden(_)) = &result {
            self.refuse_scan(&scan_id).await;
        }
        result
    }

    async fn complete_redirect(
        &self,
        code: &str,
        flow: Option<&Flow>,
        attempt: &mut Attempt<'_>,
    ) -> Result<CallbackResult, Error> {
        if flow.is_none() && self.flow_cookie == FlowCookie::Required {
            return Err(BadRequest::SignInFlow.into());
        }
        let employee = match self.provider.identify(code, attempt).await? {
            PlatformUser::Employee(employee) => employee,
            PlatformUser::Unbound(member) => {
                let home = flow.map_or_else(|| self.clients.h5.as_str(), |flow| flow.redirect_uri.as_str());
                return Ok(self.bind_first(member, home));
            }
        };
        let roles = self.roles.for_sign_in(&employee).await?;
        let by_role = || role::highest(&roles).map_or(Client::H5, Client::of_role);
        let client = flow.map_or_else(by_role, |flow| flow.client);
        *attempt = attempt.clone().with_client(Some(client));
        let session = self.issuer.create(&employee, roles, attempt).await?;
        let SignInGrant { token, expires_in, .. } = self.issuer.issue(&session);
        let session = session.id;
        let to = match flow {
            Some(flow) => flow.redirect_uri.clone(),
            None => self.clients.url(client).to_string(),
        };
        let flow = flow.map(|flow| flow.nonce.clone());
        Ok(CallbackResult::SignedIn { to, session, token, expires_in, flow })
    }

    async fn complete_scan(
        &self,
        code: &str,
        scan_id: &ScanId,
        attempt: &mut Attempt<'_>,
    ) -> Result<CallbackResult, Error> {
        // Checked first, because a code can be used only once and must not be spent on an expired ticket.
        let ticket = self.tickets.open_ticket(scan_id).await?;
        attempt.client = ticket.client;
        let user = self.provider.identify(code, attempt).await;
        if let Err(Error::BadRequest(BadRequest::SignInCode)) = &user {
            self.tickets.count_invalid_code(&ticket).await?;
        }
        let employee = match user? {
            PlatformUser::Employee(employee) => employee,
            PlatformUser::Unbound(member) => return Ok(self.bind_first(member, self.clients.h5.as_str())),
        };
        // Checked now, while the user still looks at the phone, and not when the browser collects the token.
        self.roles.for_sign_in(&employee).await?;
        let Employee { corp_id, employee_id, name, .. } = employee;
        let address = attempt.device.address.clone();
        let by = Scanner { corp_id, employee_id, name, address, platform_account: attempt.platform_account.clone() };
        Ok(CallbackResult::Scanned(self.tickets.scan(scan_id, by, attempt.device).await?))
    }

    /// Tells the waiting browser that the scan was refused. The phone's answer does not depend on it: without it the
    /// browser waits until the ticket expires.
    async fn refuse_scan(&self, scan_id: &ScanId) {
        if let Err(error) = self.tickets.refuse(scan_id).await {
            tracing::debug!(%error, "the refused ticket was not ended");
        }
    }

    fn bind_first(&self, member: UnregisteredMember, home: &str) -> CallbackResult {
        let proof = self.bind_proofs.sign(member, home);
        CallbackResult::BindFirst { proof, lifetime: self.bind_proofs.lifetime }
    }
}

fn failed(to: Option<String>, error: Error) -> CallbackResult {
    CallbackResult::Failed { to, word: error_word(&error), error }
}

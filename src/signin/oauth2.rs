//! Sign-in by redirect: the authorize URL, the flow cookie that ties the way back to this browser,
//! and the callback.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use url::Url;

use super::ticket::{STATE_PREFIX, Scanned};
use super::{Device, SignIn};
use crate::config::{Client, FlowCookie};
use crate::directory::Arriving;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId, Standing};
use crate::domain::path;
use crate::domain::secret::random_name;
use crate::domain::session::LoginMethod;
use crate::domain::ticket::{ScanId, Scanner};
use crate::error::{BadRequest, Error, Forbidden, Part};
use crate::platform::{AuthorizeRequest, MemberStatus, Person, PlatformError};
use crate::token::seal::SealedAs;

/// The `state` that the specification fixes for redirects.
pub const STATE: &str = "auth_login";

/// A flow that a browser has begun; sealed into its cookie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// What makes it this one.
    pub nonce: String,
    /// Where it returns to.
    pub redirect_uri: String,
    /// Whose page that is.
    pub client: Client,
    /// When it ends.
    pub end: Timestamp,
}

impl Flow {
    /// The page that it returns to, without its query.
    pub(super) fn page(&self) -> &str {
        self.redirect_uri.split('?').next().unwrap_or_default()
    }
}

/// The beginning of a flow.
#[derive(Debug)]
pub struct Begun {
    /// Where to send the browser.
    pub authorize_url: String,
    /// Names the cookie.
    pub nonce: String,
    /// The cookie's value.
    pub sealed: String,
}

/// Who has proved on the platform that they are of a connected corporation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindProofClaim {
    /// Their corporation.
    pub corp_id: CorpId,
    /// Who they are there.
    pub employee_id: EmployeeId,
}

/// What came with a callback.
#[derive(Debug, Clone, Copy)]
pub struct Callback<'a> {
    /// The authorization code.
    pub code: Option<&'a str>,
    /// `auth_login`, or `qr` and a scan id.
    pub state: Option<&'a str>,
    /// The platform's error, if the front end forwards one.
    pub errcode: Option<&'a str>,
    /// The values of the flow cookies, newest last.
    pub flows: &'a [String],
    /// The page that the browser comes from; chooses among several flows.
    pub referer: Option<&'a str>,
}

/// Where a callback leads.
#[derive(Debug)]
pub enum Return {
    /// Back to the client's page with a token.
    SignedIn {
        /// The page.
        to: String,
        /// The token.
        token: String,
        /// Seconds until it ends.
        expires_in: u64,
    },
    /// The phone must confirm.
    Scanned(Scanned),
    /// A member of a connected corporation without an employee: they may bind.
    BindFirst {
        /// The page.
        to: Option<String>,
        /// The cookie that lets them bind.
        proof: String,
    },
    /// Back to the client's page with an error, or to an error page where none is known.
    Failed {
        /// The page.
        to: Option<String>,
        /// Why, for programs.
        word: &'static str,
        /// Why.
        error: Error,
    },
}

impl SignIn {
    /// Begins a flow that returns to `redirect_uri`, which must lie under one of the clients' addresses.
    pub fn begin_flow(&self, redirect_uri: &str) -> Result<Begun, Error> {
        let client = self.client_of(redirect_uri).ok_or(BadRequest::RedirectUri)?;
        let end = self.clock.now().plus(self.settings.flow_lifetime);
        let flow = Flow { nonce: random_name(22), redirect_uri: redirect_uri.to_owned(), client, end };
        let request = AuthorizeRequest { redirect_uri, state: STATE };
        Ok(Begun {
            authorize_url: self.platform.authorize_url(request).into(),
            sealed: self.seal.seal(SealedAs::Flow, end, &flow),
            nonce: flow.nonce,
        })
    }

    /// The client under whose address a redirect lies: same origin, and the path below its path.
    fn client_of(&self, redirect_uri: &str) -> Option<Client> {
        // The parser would quietly drop line ends and turn backslashes around, so plain text only.
        let plain = redirect_uri.len() <= 2048
            && redirect_uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\#\"<>^`{|}".contains(&byte));
        let url = plain.then(|| Url::parse(redirect_uri).ok()).flatten()?;
        let (_, after_scheme) = redirect_uri.split_once("://")?;
        let raw_path = &after_scheme[after_scheme.find(['/', '?'])?..];
        let raw_path = raw_path.split('?').next().unwrap_or_default();
        if !url.username().is_empty() || url.password().is_some() || path::canonical(raw_path.as_bytes()).is_err() {
            return None;
        }
        Client::ALL.into_iter().find(|client| {
            let own = self.settings.clients.url(*client);
            own.origin() == url.origin() && url.path() == raw_path && raw_path.starts_with(own.path())
        })
    }

    /// Handles the platform's callback. The same call again gets the same answer.
    pub async fn callback(&self, callback: Callback<'_>, device: &Device) -> Arc<Return> {
        let now = self.clock.now();
        let mut flows: Vec<Flow> =
            callback.flows.iter().filter_map(|text| self.seal.unseal(SealedAs::Flow, text, now)).collect();
        flows.sort_by_key(|flow| flow.end);
        let page = callback.referer.map(|referer| referer.split(['?', '#']).next().unwrap_or_default());
        let Some(code) = callback.code.filter(|code| !code.is_empty() && code.len() <= 512) else {
            let from_page = flows.iter().rposition(|flow| Some(flow.page()) == page);
            let flow = from_page.or_else(|| flows.len().checked_sub(1)).map(|index| flows.swap_remove(index));
            return Arc::new(self.without_code(&callback, flow));
        };
        let flow = match callback.state {
            Some(STATE) => self.callbacks.choose_flow(flows, page, code, now),
            _ => None,
        };
        let nonce = flow.as_ref().map_or("", |flow| &flow.nonce);
        let cell = self.callbacks.answer(&[code, callback.state.unwrap_or_default(), nonce], now);
        cell.get_or_init(|| async {
            let returned = self.with_code(code, &callback, flow.clone(), device).await;
            if let Return::Failed { .. } = &returned {
                let method = if callback.state == Some(STATE) { LoginMethod::Oauth2 } else { LoginMethod::Qrcode };
                let client = flow.as_ref().map_or("none", |flow| flow.client.as_str());
                self.metrics.signin.with_label_values(&[method.as_str(), client, "refused"]).inc();
            }
            Arc::new(returned)
        })
        .await
        .clone()
    }

    fn without_code(&self, callback: &Callback<'_>, flow: Option<Flow>) -> Return {
        let to = (callback.state == Some(STATE)).then_some(flow).flatten().map(|flow| flow.redirect_uri);
        // The platform's own sign of a refusal is a state without a code.
        let word = if callback.errcode.is_some() { "platform_error" } else { "access_denied" };
        Return::Failed { to, word, error: BadRequest::Missing("code").into() }
    }

    async fn with_code(&self, code: &str, callback: &Callback<'_>, flow: Option<Flow>, device: &Device) -> Return {
        match callback.state {
            Some(STATE) => self.redirected(code, flow, device).await,
            Some(state) if is_scan(state) => {
                let scan_id = ScanId::new(&state[STATE_PREFIX.len()..]);
                match self.scanned(code, &scan_id).await {
                    Ok(scanned) => Return::Scanned(scanned),
                    Err(error) => Return::Failed { to: None, word: word_of(&error), error },
                }
            }
            _ => Return::Failed { to: None, word: "invalid_state", error: BadRequest::Parameter("state").into() },
        }
    }

    async fn redirected(&self, code: &str, flow: Option<Flow>, device: &Device) -> Return {
        if flow.is_none() && self.settings.flow_cookie == FlowCookie::Required {
            let error = BadRequest::Parameter("state").into();
            return Return::Failed { to: None, word: "invalid_flow", error };
        }
        let to = flow.as_ref().map(|flow| flow.redirect_uri.clone());
        match self.sign_in_with(code, flow.as_ref().map(|flow| flow.client), device).await {
            Ok(Arrived::SignedIn { client, token, expires_in }) => {
                let to = to.unwrap_or_else(|| self.settings.clients.url(client).to_string());
                Return::SignedIn { to, token, expires_in }
            }
            Ok(Arrived::Unbound(proof)) => Return::BindFirst { to, proof },
            Err(error) => Return::Failed { to, word: word_of(&error), error },
        }
    }

    async fn sign_in_with(&self, code: &str, client: Option<Client>, device: &Device) -> Result<Arrived, Error> {
        let employee = match self.identify(code).await? {
            Identified::Employee(employee) => employee,
            Identified::Unbound(claim) => {
                let end = self.clock.now().plus(self.settings.flow_lifetime);
                return Ok(Arrived::Unbound(self.seal.seal(SealedAs::BindProof, end, &claim)));
            }
        };
        let roles = self.roles_of(&employee).await?;
        let client = client.unwrap_or_else(|| crate::domain::role::highest(&roles).map_or(Client::H5, Client::of_role));
        let session = self.begin(&employee, roles, LoginMethod::Oauth2, client.login_source(), device).await?;
        let logged_in = self.logged_in(&session);
        Ok(Arrived::SignedIn { client, token: logged_in.token, expires_in: logged_in.expires_in })
    }

    async fn scanned(&self, code: &str, scan_id: &ScanId) -> Result<Scanned, Error> {
        let employee = match self.identify(code).await? {
            Identified::Employee(employee) => employee,
            Identified::Unbound(_) => return Err(Forbidden::EmployeeUnknown.into()),
        };
        // Found out now, while the person still looks at the phone, and not when the browser collects.
        self.roles_of(&employee).await?;
        let Employee { corp_id, employee_id, name, .. } = employee;
        self.scan(scan_id, Scanner { corp_id, employee_id, name }).await
    }

    /// Whose code this is. Creates or refreshes the employee of a member.
    async fn identify(&self, code: &str) -> Result<Identified, Error> {
        let employee_id = match self.ask_platform("identify", self.platform.identify(code)).await? {
            Person::Member { employee_id } => employee_id,
            Person::Linked { corp_id, employee_id } => {
                return match self.directory.employee(&corp_id, &employee_id).await? {
                    Some(employee) => active(employee).map(Identified::Employee),
                    None => Ok(Identified::Unbound(BindProofClaim { corp_id, employee_id })),
                };
            }
            Person::Outsider => return Err(Forbidden::EmployeeUnknown.into()),
        };
        let profile = self.ask_platform("profile", self.platform.profile(&employee_id)).await?;
        if profile.status == MemberStatus::Inactive {
            return Err(Forbidden::Disabled.into());
        }
        let corp_id = self.settings.main_corp.clone();
        let arriving = Arriving {
            corp_id: &corp_id,
            employee_id: &employee_id,
            name: &profile.name,
            department: &profile.department,
            avatar: &profile.avatar,
        };
        active(self.directory.welcome(arriving).await?).map(Identified::Employee)
    }

    /// Asks the platform, and counts how long it took and how it went.
    async fn ask_platform<T>(
        &self,
        call: &'static str,
        question: impl Future<Output = Result<T, PlatformError>>,
    ) -> Result<T, Error> {
        let asked = std::time::Instant::now();
        let answer = question.await;
        self.metrics.platform_seconds.with_label_values(&[call]).observe(asked.elapsed().as_secs_f64());
        answer.map_err(|error| {
            self.metrics.platform_errors.with_label_values(&[call, error.class()]).inc();
            platform_error(error)
        })
    }

    /// What a bind proof says, if we sealed it and it is still good.
    pub(super) fn bind_claim(&self, proof: &str) -> Option<BindProofClaim> {
        self.seal.unseal(SealedAs::BindProof, proof, self.clock.now())
    }
}

enum Identified {
    Employee(Employee),
    Unbound(BindProofClaim),
}

enum Arrived {
    SignedIn { client: Client, token: String, expires_in: u64 },
    Unbound(String),
}

fn active(employee: Employee) -> Result<Employee, Error> {
    match employee.standing {
        Standing::Active => Ok(employee),
        Standing::Disabled => Err(Forbidden::Disabled.into()),
    }
}

/// Letters and digits only, as we make them: anything else was not ours.
fn is_scan(state: &str) -> bool {
    state
        .strip_prefix(STATE_PREFIX)
        .is_some_and(|id| (16..=126).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn platform_error(error: PlatformError) -> Error {
    match error {
        PlatformError::InvalidCode => BadRequest::Parameter("code").into(),
        PlatformError::UnknownMember => Forbidden::EmployeeUnknown.into(),
        other => Error::unexpected(Part::Platform, other),
    }
}

/// The word for `#error=`, after OAuth's own where it has one.
fn word_of(error: &Error) -> &'static str {
    match error {
        Error::BadRequest(BadRequest::Parameter("code")) => "invalid_code",
        Error::BadRequest(_) => "invalid_state",
        Error::Forbidden(_) => "access_denied",
        Error::Unexpected { .. } => "server_error",
        _ => "temporarily_unavailable",
    }
}

//! Sign-in by redirect: the authorize URL, the flow cookie that ties the kind back to this browser,
//! and the callback.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use url::Url;

use super::attempt::Attempt;
use super::session::LoggedIn;
use super::ticket::{STATE_PREFIX, Scanned};
use super::{Device, SignIn};
use crate::config::FlowCookie;
use crate::directory::EmployeeProfile;
use crate::domain::client::Client;
use crate::domain::clock::Timestamp;
use crate::domain::employee::{CorpId, Employee, EmployeeId, Standing};
use crate::domain::path;
use crate::domain::secret::{Secret, random_name};
use crate::domain::session::{LoginMethod, LoginSource};
use crate::domain::ticket::{ScanId, Scanner};
use crate::error::{BadRequest, Error, Forbidden, Operation, Part};
use crate::platform::{AuthorizeRequest, Consent, MemberStatus, Parameter, Person, PlatformError, Profile};
use crate::token::cookie::CookieKind;

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
    /// What they are called, as far as the platform tells.
    pub name: String,
    /// Where they wanted to go.
    pub home: String,
    /// What makes this proof this one: it binds once.
    pub nonce: String,
    /// When it ends.
    pub end: Timestamp,
}

/// What came with a callback.
#[derive(Clone, Copy)]
pub struct Callback<'a> {
    /// Its parameters; the platform knows which of them it sent.
    pub parameter: Parameter<'a, 'a>,
    /// `auth_login`, or `qr` and a scan id.
    pub state: Option<&'a str>,
    /// The values of the flow cookies, newest last.
    pub flows: &'a [String],
    /// The page that the browser comes from; chooses among several flows.
    pub referer: Option<&'a str>,
    /// What the browser says about that page's site (`Sec-Fetch-Site`).
    pub fetch_site: Option<&'a str>,
}

/// Where a callback leads.
#[derive(Debug)]
pub enum Return {
    /// Back to the client's page with a token.
    SignedIn {
        /// The page.
        to: String,
        /// The token.
        token: Secret<String>,
        /// Seconds until it ends.
        expires_in: u64,
        /// The flow that is done now.
        flow: Option<String>,
    },
    /// The phone must confirm.
    Scanned(Scanned),
    /// A member of a connected corporation without an employee: they may bind.
    BindFirst {
        /// The cookie that lets them bind.
        proof: Secret<String>,
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
        self.platform_answers()?;
        let end = self.clock.now().plus(self.settings.flow_lifetime);
        let flow = Flow { nonce: random_name(22), redirect_uri: redirect_uri.to_owned(), client, end };
        let request = AuthorizeRequest { redirect_uri, state: STATE };
        Ok(Begun {
            authorize_url: self.platform.authorize_url(request).into(),
            sealed: self.cookies.sign(CookieKind::Flow, end, &flow),
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
            callback.flows.iter().filter_map(|text| self.cookies.verify(CookieKind::Flow, text, now)).collect();
        flows.sort_by_key(|flow| flow.end);
        if self.comes_from_elsewhere(&callback) {
            // Somebody else's page sent the browser here, perhaps with somebody else's code.
            flows.clear();
        }
        let page = callback.referer.map(|referer| referer.split(['?', '#']).next().unwrap_or_default());
        let kind = FlowKind::of(callback.state);
        let (code, word, fault) = match self.platform.consent(callback.parameter) {
            Consent::Granted { code } if kind != FlowKind::Unknown => (code, "", BadRequest::SignInCode),
            Consent::Granted { .. } => ("", "invalid_state", BadRequest::Parameter("state")),
            Consent::Denied => ("", "access_denied", BadRequest::SignInDeclined),
            Consent::Failed => ("", "platform_error", BadRequest::SignInFailed),
        };
        if code.is_empty() {
            let from_page = flows.iter().rposition(|flow| Some(flow.page()) == page);
            let flow = from_page.or_else(|| flows.len().checked_sub(1)).map(|index| flows.swap_remove(index));
            let flow = flow.filter(|_| kind == FlowKind::Redirect);
            let error = Error::from(fault);
            self.record_refusal(&kind.attempt(flow.as_ref(), device), &error).await;
            return Arc::new(Return::Failed { to: flow.map(|flow| flow.redirect_uri), word, error });
        }
        let flow = match kind {
            FlowKind::Redirect => self.callbacks.choose_flow(flows, page, code, now),
            _ => None,
        };
        // The flow tells the browser that comes again from another that got hold of the address; where there is
        // none, the device has to.
        let nonce = flow.as_ref().map(|flow| flow.nonce.clone());
        let who = match &nonce {
            Some(nonce) => [nonce.as_str(), ""],
            None => [device.address.as_str(), &device.user_agent],
        };
        let words = [code, callback.state.unwrap_or_default(), who[0], who[1]];
        let cell = self.callbacks.answer(&words, now);
        let returned =
            cell.get_or_init(|| async { Arc::new(self.with_code(code, kind, flow, device).await) }).await.clone();
        if let Return::Failed { error: Error::PlatformCircuitOpen { .. } | Error::Unavailable { .. }, .. } = &*returned
        {
            // The code is as good as it was: who comes again is not told the same once more.
            self.callbacks.forget(&words);
        }
        returned
    }

    /// Whether a page that is none of the clients' has sent the browser to the callback.
    fn comes_from_elsewhere(&self, callback: &Callback<'_>) -> bool {
        let clients = || Client::ALL.into_iter().map(|client| self.settings.clients.url(client));
        let ours = Url::parse(&self.settings.public_url).ok();
        let one_host = clients().all(|client| ours.as_ref().is_some_and(|ours| ours.host() == client.host()));
        let foreign_page = callback
            .referer
            .and_then(|referer| Url::parse(referer).ok())
            .is_some_and(|page| clients().chain(&ours).all(|own| own.origin() != page.origin()));
        foreign_page || (one_host && callback.fetch_site == Some("cross-site"))
    }

    async fn with_code(&self, code: &str, kind: FlowKind<'_>, flow: Option<Flow>, device: &Device) -> Return {
        let mut attempt = kind.attempt(flow.as_ref(), device);
        let returned = match kind {
            FlowKind::Scan(scan_id) => self.scanned(code, &ScanId::new(scan_id), &mut attempt).await,
            FlowKind::Redirect | FlowKind::Unknown => self.redirected(code, flow.as_ref(), &mut attempt).await,
        };
        match returned {
            Ok(returned) => {
                if let Return::BindFirst { .. } = &returned {
                    self.record_unbound(&attempt).await;
                }
                returned
            }
            Err(error) => {
                let error = error.within(Operation::Callback);
                self.record_refusal(&attempt, &error).await;
                Return::Failed { to: flow.map(|flow| flow.redirect_uri), word: word_of(&error), error }
            }
        }
    }

    async fn redirected(&self, code: &str, flow: Option<&Flow>, attempt: &mut Attempt<'_>) -> Result<Return, Error> {
        if flow.is_none() && self.settings.flow_cookie == FlowCookie::Required {
            return Err(BadRequest::SignInFlow.into());
        }
        let employee = match self.identify(code, attempt).await? {
            Identified::Employee(employee) => employee,
            Identified::Unbound(member) => {
                let home = flow.map_or_else(|| self.settings.clients.h5.as_str(), |flow| flow.redirect_uri.as_str());
                return Ok(self.bind_first(member, home));
            }
        };
        let roles = self.roles_of(&employee).await?;
        let by_role = || crate::domain::role::highest(&roles).map_or(Client::H5, Client::of_role);
        let client = flow.map_or_else(by_role, |flow| flow.client);
        *attempt = attempt.clone().at(Some(client));
        let session = self.begin(&employee, roles, attempt).await?;
        let LoggedIn { token, expires_in, .. } = self.logged_in(&session);
        let to = match flow {
            Some(flow) => flow.redirect_uri.clone(),
            None => self.settings.clients.url(client).to_string(),
        };
        Ok(Return::SignedIn { to, token, expires_in, flow: flow.map(|flow| flow.nonce.clone()) })
    }

    async fn scanned(&self, code: &str, scan_id: &ScanId, attempt: &mut Attempt<'_>) -> Result<Return, Error> {
        // First, because a code can be spent only once, and a dead ticket is not worth it.
        let ticket = self.open_ticket(scan_id).await?;
        attempt.client = ticket.client;
        let identified = self.identify(code, attempt).await;
        if let Err(Error::BadRequest(BadRequest::SignInCode)) = &identified {
            self.count_miss(&ticket).await?;
        }
        let employee = match identified? {
            Identified::Employee(employee) => employee,
            Identified::Unbound(member) => return Ok(self.bind_first(member, self.settings.clients.h5.as_str())),
        };
        // Found out now, while the person still looks at the phone, and not when the browser collects.
        self.roles_of(&employee).await?;
        let Employee { corp_id, employee_id, name, .. } = employee;
        let by = Scanner { corp_id, employee_id, name, address: attempt.device.address.clone() };
        Ok(Return::Scanned(self.scan(scan_id, by).await?))
    }

    /// Somebody of a connected corporation, of whom the directory knows nothing yet: they may bind.
    fn bind_first(&self, member: LinkedMember, home: &str) -> Return {
        let LinkedMember { corp_id, employee_id, name } = member;
        let end = self.clock.now().plus(self.settings.flow_lifetime);
        let claim = BindProofClaim { corp_id, employee_id, name, home: home.to_owned(), nonce: random_name(22), end };
        Return::BindFirst { proof: Secret::new(self.cookies.sign(CookieKind::BindProof, end, &claim)) }
    }

    /// Whose code this is. Creates or refreshes the employee of a member.
    async fn identify(&self, code: &str, attempt: &mut Attempt<'_>) -> Result<Identified, Error> {
        let person = self.ask_platform("identify", self.platform.identify(code)).await?;
        let (corp_id, employee_id) = match &person {
            Person::Member { employee_id } => (&self.settings.main_corp, employee_id),
            Person::Linked { corp_id, employee_id } => (corp_id, employee_id),
            Person::Outsider => return Err(Forbidden::NotAnEmployee.into()),
        };
        attempt.is(corp_id, employee_id);
        let profile = self.ask_platform("profile", self.platform.profile(&person)).await;
        let profile = match &person {
            // The platform tells little or nothing about them; what it does not tell is no reason to refuse.
            Person::Linked { .. } => profile.unwrap_or_else(|_| Profile::unnamed()),
            _ => profile?,
        };
        if let Person::Linked { corp_id, employee_id } = &person
            && self.directory.employee(corp_id, employee_id).await?.is_none()
        {
            let (corp_id, employee_id) = (corp_id.clone(), employee_id.clone());
            return Ok(Identified::Unbound(LinkedMember { corp_id, employee_id, name: profile.name }));
        }
        if profile.status == MemberStatus::Inactive {
            return Err(Forbidden::Disabled.into());
        }
        let profile = EmployeeProfile {
            corp_id,
            employee_id,
            name: &profile.name,
            department: &profile.department,
            avatar: &profile.avatar,
        };
        active(self.directory.upsert_employee(profile).await?).map(Identified::Employee)
    }

    /// The employee whose code this is.
    pub(super) async fn identify_employee(&self, code: &str, attempt: &mut Attempt<'_>) -> Result<Employee, Error> {
        match self.identify(code, attempt).await? {
            Identified::Employee(employee) => Ok(employee),
            Identified::Unbound(_) => Err(Forbidden::NotAnEmployee.into()),
        }
    }

    /// Refuses while the platform is left alone: whoever is sent there now would come back to a refusal.
    pub(super) fn platform_answers(&self) -> Result<(), Error> {
        match self.platform.circuit_open_for() {
            Some(retry_after) => Err(Error::PlatformCircuitOpen { retry_after }),
            None => Ok(()),
        }
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
            match &error {
                // Nobody can sign in until an operator has seen to it.
                PlatformError::Configuration { .. } => tracing::error!(call, "{error}"),
                PlatformError::Unavailable(_) => tracing::warn!(call, "{error}"),
                PlatformError::InvalidCode
                | PlatformError::UnknownMember
                | PlatformError::NotVisible
                | PlatformError::CircuitOpen { .. } => {}
            }
            platform_error(error)
        })
    }

    /// What a bind proof says, if we sealed it and it is still good.
    pub fn bind_claim(&self, proof: &str) -> Option<BindProofClaim> {
        self.cookies.verify(CookieKind::BindProof, proof, self.clock.now())
    }
}

enum Identified {
    Employee(Employee),
    Unbound(LinkedMember),
}

/// A member of a connected corporation, of whom the directory knows nothing.
struct LinkedMember {
    corp_id: CorpId,
    employee_id: EmployeeId,
    name: String,
}

/// What a callback's `state` says about how somebody came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowKind<'a> {
    /// By redirect.
    Redirect,
    /// By scanning this code.
    Scan(&'a str),
    /// With a state that is none of ours.
    Unknown,
}

impl<'a> FlowKind<'a> {
    fn of(state: Option<&'a str>) -> Self {
        // Letters and digits only, as we make them: anything else was not ours.
        let is_scan_id =
            |id: &&str| (16..=126).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match state {
            Some(STATE) => FlowKind::Redirect,
            Some(state) => {
                state.strip_prefix(STATE_PREFIX).filter(is_scan_id).map_or(FlowKind::Unknown, FlowKind::Scan)
            }
            None => FlowKind::Unknown,
        }
    }

    fn attempt<'d>(self, flow: Option<&Flow>, device: &'d Device) -> Attempt<'d> {
        match self {
            FlowKind::Scan(_) => Attempt::new(LoginMethod::Qrcode, device).from(LoginSource::Qrcode),
            FlowKind::Redirect | FlowKind::Unknown => {
                Attempt::new(LoginMethod::Oauth2, device).at(flow.map(|flow| flow.client))
            }
        }
    }
}

pub(super) fn active(employee: Employee) -> Result<Employee, Error> {
    match employee.standing {
        Standing::Active => Ok(employee),
        Standing::Disabled => Err(Forbidden::Disabled.into()),
    }
}

fn platform_error(error: PlatformError) -> Error {
    match error {
        PlatformError::InvalidCode => BadRequest::SignInCode.into(),
        PlatformError::UnknownMember => Forbidden::NotAnEmployee.into(),
        PlatformError::NotVisible => Forbidden::NotVisible.into(),
        PlatformError::CircuitOpen { retry_after } => Error::PlatformCircuitOpen { retry_after },
        PlatformError::Configuration { .. } => Error::unexpected(Part::PlatformSetup, error),
        other => Error::unexpected(Part::Platform, other),
    }
}

/// The word for `#error=`, after OAuth's own where it has one.
fn word_of(error: &Error) -> &'static str {
    match error {
        Error::BadRequest(BadRequest::SignInCode) => "invalid_code",
        Error::BadRequest(BadRequest::SignInFlow) => "invalid_flow",
        Error::BadRequest(BadRequest::TicketOver) => "ticket_over",
        Error::BadRequest(_) => "invalid_state",
        Error::Forbidden(_) => "access_denied",
        Error::Unexpected { .. } => "server_error",
        _ => "temporarily_unavailable",
    }
}

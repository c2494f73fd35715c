//! The WeCom client.
//!
//! A sign-in makes up to three calls: code to person, person to profile, department ID to department name. All carry
//! the application's access token, which WeCom may revoke at any time: a call that fails because of a stale token is
//! retried once with a new one.

use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use super::breaker::{CallOutcome, CircuitBreaker};
use super::call_log::{CallFailure, RunningCall};
use super::http::{HttpClient, HttpError};
use super::{AuthorizeRequest, Consent, MemberStatus, Parameter, Person, Platform, PlatformError, Profile};
use crate::domain::clock::Clock;
use crate::domain::employee::{CorpId, EmployeeId, InactiveReason};
use crate::domain::secret::Secret;
use app_token::{AppToken, AppTokens, FreshToken};
use departments::DepartmentCache;
use response::{
    DepartmentResponse, Errcode, IdentityResponse, LinkedMemberResponse, MemberResponse, TokenResponse, WecomResult,
};

mod app_token;

mod departments;

mod response;

/// Fetches the application's access token.
const TOKEN: &str = "cgi-bin/gettoken";

/// Exchanges an authorization code for a person.
const USER_INFO: &str = "cgi-bin/auth/getuserinfo";

/// Fetches a member's profile.
const USER: &str = "cgi-bin/user/get";

/// Longest authorization code that WeCom issues; longer ones are rejected without a call.
const MAX_CODE_LENGTH: usize = 512;

/// Fetches the profile of a connected corporation's member.
const LINKED_USER: &str = "cgi-bin/linkedcorp/user/get";

/// Fetches a department.
const DEPARTMENT: &str = "cgi-bin/department/get";

/// Retries of a call that failed because WeCom was busy; its documentation asks for three.
const BUSY_RETRIES: u32 = 3;

/// The pause before the first retry; it doubles with each.
const BUSY_BACKOFF: Duration = Duration::from_millis(100);

impl From<HttpError> for PlatformError {
    fn from(error: HttpError) -> Self {
        PlatformError::Unavailable(error.to_string())
    }
}

/// The client's settings.
#[derive(Debug, Clone)]
pub struct WecomSettings {
    /// The main corporation.
    pub corp_id: CorpId,
    /// The application. Without it, authorize URLs carry no `agentid`.
    pub agent_id: Option<String>,
    /// The application's secret.
    pub secret: Secret<String>,
    /// The authorize page.
    pub authorize_url: Url,
    /// The base URL of the server API; its path is kept as a prefix.
    pub api_url: Url,
    /// The timeout of one call.
    pub timeout: Duration,
}

/// WeCom, or a server with the same API.
pub struct WecomPlatform {
    settings: WecomSettings,
    http: HttpClient,
    breakers: Breakers,
    tokens: AppTokens,
    departments: DepartmentCache,
}

/// One circuit breaker per API: one of them may fail while the others respond.
struct Breakers {
    /// The APIs that every sign-in needs.
    required: [(&'static str, CircuitBreaker); 3],
    others: CircuitBreaker,
}

impl Breakers {
    fn new(clock: &Clock, timeout: Duration) -> Self {
        let breaker = || CircuitBreaker::new(clock.clone(), timeout);
        Self { required: [TOKEN, USER_INFO, USER].map(|path| (path, breaker())), others: breaker() }
    }

    fn of(&self, url: &Url) -> &CircuitBreaker {
        let found = self.required.iter().find(|(path, _)| url.path().ends_with(path));
        found.map_or(&self.others, |(_, breaker)| breaker)
    }

    fn circuit_open_for(&self) -> Option<Duration> {
        self.required.iter().filter_map(|(_, breaker)| breaker.circuit_open_for()).max()
    }
}

/// The parameters of a call.
#[derive(Clone, Copy)]
enum Payload<'a> {
    /// The query of a GET.
    Query(&'a [(&'a str, &'a str)]),
    /// The body of a POST.
    Json(&'a Value),
}

/// Whether a call is retried when WeCom is busy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenBusy {
    /// The call only reads.
    Retry,
    /// The failed call may have consumed the authorization code.
    Fail,
}

impl WecomPlatform {
    /// A client on the system clock. Makes no call yet; fails only if TLS is needed and the system has no root
    /// certificates.
    pub fn new(settings: WecomSettings) -> Result<Self, PlatformError> {
        Self::with_clock(settings, Clock::system())
    }

    /// A client on the given clock.
    pub fn with_clock(settings: WecomSettings, clock: Clock) -> Result<Self, PlatformError> {
        let http = HttpClient::new(&settings.api_url, settings.timeout)?;
        let tokens = AppTokens::new(clock.clone());
        let breakers = Breakers::new(&clock, settings.timeout);
        Ok(Self { settings, http, breakers, tokens, departments: DepartmentCache::new(clock) })
    }

    /// Makes a call with the access token, and retries it once with a new one if the token is stale.
    async fn call<T: DeserializeOwned>(
        &self,
        path: &'static str,
        payload: Payload<'_>,
        when_busy: WhenBusy,
    ) -> Result<WecomResult<T>, PlatformError> {
        let token = self.token().await?;
        match self.call_with(&token, path, payload, when_busy).await? {
            Err(errcode) if errcode.is_stale_token() => {
                self.tokens.invalidate(&token);
                let token = self.token().await?;
                self.call_with(&token, path, payload, when_busy).await
            }
            result => Ok(result),
        }
    }

    async fn call_with<T: DeserializeOwned>(
        &self,
        token: &AppToken,
        path: &'static str,
        payload: Payload<'_>,
        when_busy: WhenBusy,
    ) -> Result<WecomResult<T>, PlatformError> {
        let mut url = self.endpoint(path);
        url.query_pairs_mut().append_pair("access_token", token.reveal());
        let body = match payload {
            Payload::Query(pairs) => {
                url.query_pairs_mut().extend_pairs(pairs);
                None
            }
            Payload::Json(body) => Some(body),
        };
        match when_busy {
            WhenBusy::Retry => self.send_with_retry(path, &url, body).await,
            WhenBusy::Fail => self.send(path, &url, body).await,
        }
    }

    async fn token(&self) -> Result<AppToken, PlatformError> {
        let fetch = || async {
            let mut url = self.endpoint(TOKEN);
            url.query_pairs_mut()
                .append_pair("corpid", self.settings.corp_id.as_str())
                .append_pair("corpsecret", self.settings.secret.reveal());
            let TokenResponse { access_token, expires_in } = self.send_with_retry(TOKEN, &url, None).await??;
            if access_token.is_empty() {
                return Err(PlatformError::Unavailable("empty access token".to_owned()));
            }
            Ok(FreshToken { token: Secret::new(access_token), lifetime: Duration::from_secs(expires_in) })
        };
        self.tokens.current(fetch).await
    }

    /// Sends a request, and retries it with backoff while WeCom reports that it is busy.
    async fn send_with_retry<T: DeserializeOwned>(
        &self,
        path: &'static str,
        url: &Url,
        body: Option<&Value>,
    ) -> Result<WecomResult<T>, PlatformError> {
        for retry in 0..BUSY_RETRIES {
            match self.send(path, url, body).await? {
                Err(Errcode::BUSY) => tokio::time::sleep(BUSY_BACKOFF * 2_u32.pow(retry)).await,
                result => return Ok(result),
            }
        }
        self.send(path, url, body).await
    }

    /// Sends one request, unless the circuit is open.
    async fn send<T: DeserializeOwned>(
        &self,
        path: &'static str,
        url: &Url,
        body: Option<&Value>,
    ) -> Result<WecomResult<T>, PlatformError> {
        let breaker = self.breakers.of(url);
        breaker.admit()?;
        let call = RunningCall::begin(path, if body.is_none() { "GET" } else { "POST" }, url);
        let sent = match body {
            None => self.http.get(url.clone()).await,
            Some(body) => self.http.post(url.clone(), body).await,
        };
        let (status, failure) = http_result(&sent);
        let result = sent.map_err(PlatformError::from).and_then(|bytes| response::parse(&bytes));
        call.end(
            status,
            match &result {
                Ok(Ok(_)) => None,
                Ok(Err(Errcode(number))) => Some(CallFailure::Errcode(*number)),
                Err(_) => Some(failure.unwrap_or(CallFailure::InvalidResponse)),
            },
        );
        breaker.record(match &result {
            Ok(Ok(_)) => CallOutcome::Success,
            Ok(Err(errcode)) => errcode.outcome(),
            Err(_) => CallOutcome::Failure,
        });
        result
    }

    fn endpoint(&self, path: &str) -> Url {
        let mut url = self.settings.api_url.clone();
        let path = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    /// A department's name. Empty if WeCom does not disclose it or fails: a sign-in does not depend on it.
    async fn department(&self, id: i64) -> String {
        if let Some(name) = self.departments.name(id) {
            return name;
        }
        match self.fetch_department(id).await {
            Ok(name) => {
                self.departments.insert(id, &name);
                name
            }
            Err(error) => {
                tracing::warn!(department.id = id, "department name unavailable: {error}");
                String::new()
            }
        }
    }

    async fn fetch_department(&self, id: i64) -> Result<String, PlatformError> {
        let id_text = id.to_string();
        let query = [("id", id_text.as_str())];
        match self.call(DEPARTMENT, Payload::Query(&query), WhenBusy::Retry).await? {
            Ok(DepartmentResponse { department }) => Ok(department.name),
            Err(Errcode::NO_PRIVILEGE | Errcode::NO_DEPARTMENT) => Ok(String::new()),
            Err(errcode) => Err(errcode.into()),
        }
    }

    /// A member's record, if WeCom discloses it, and the status that the answer means.
    async fn member(&self, employee_id: &EmployeeId) -> Result<(MemberStatus, Option<MemberResponse>), PlatformError> {
        let requested = employee_id.as_str();
        let query = [("userid", requested)];
        let answer: WecomResult<MemberResponse> = self.call(USER, Payload::Query(&query), WhenBusy::Retry).await?;
        if answer.as_ref().is_ok_and(|member| !member.userid.eq_ignore_ascii_case(requested)) {
            return Err(PlatformError::Unavailable("the profile of another member".to_owned()));
        }
        Ok((member_status(answer.as_ref().map(|member| member.status).map_err(|errcode| *errcode))?, answer.ok()))
    }

    async fn member_profile(&self, employee_id: &EmployeeId) -> Result<Profile, PlatformError> {
        let (status, member) = self.member(employee_id).await?;
        let Some(member) = member else { return Ok(Profile::undisclosed(status)) };
        let department = match member.main_department() {
            Some(id) => self.department(id).await,
            None => String::new(),
        };
        Ok(Profile { name: member.name, department, avatar: member.avatar, status })
    }

    /// The profile of a connected corporation's member: a name at most. WeCom lists active members only; an answer that
    /// discloses nothing says nothing about the status.
    async fn linked_profile(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Profile, PlatformError> {
        let body = json!({ "userid": format!("{corp_id}/{employee_id}") });
        match self.call::<LinkedMemberResponse>(LINKED_USER, Payload::Json(&body), WhenBusy::Retry).await? {
            Ok(LinkedMemberResponse { user_info }) => {
                Ok(Profile { name: user_info.name, ..Profile::undisclosed(MemberStatus::Active) })
            }
            Err(errcode) if errcode.outcome() == CallOutcome::Success => {
                Ok(Profile::undisclosed(member_status(Err(errcode)).unwrap_or(MemberStatus::OutOfSight)))
            }
            Err(errcode) => Err(errcode.into()),
        }
    }
}

/// The status of a response, and how the exchange failed.
fn http_result(sent: &Result<bytes::Bytes, HttpError>) -> (Option<u16>, Option<CallFailure>) {
    match sent {
        // The only status that is no error.
        Ok(_) => (Some(200), None),
        Err(HttpError::Status(status)) => (Some(status.as_u16()), Some(CallFailure::Status(status.as_u16()))),
        Err(HttpError::Timeout) => (None, Some(CallFailure::Timeout)),
        Err(HttpError::Setup(_) | HttpError::Connection(_)) => (None, Some(CallFailure::Connection)),
        Err(HttpError::BodyTooLarge) => (Some(200), Some(CallFailure::InvalidResponse)),
    }
}

/// What an answer about a member means for the account: the `status` of a disclosed member, or WeCom's error number.
/// A status that WeCom does not document is no word about the member, so it disables no one and lets no one in.
fn member_status(answer: WecomResult<Option<i64>>) -> Result<MemberStatus, PlatformError> {
    match answer {
        Ok(Some(1)) => Ok(MemberStatus::Active),
        Ok(Some(2)) => Ok(MemberStatus::Inactive(InactiveReason::Disabled)),
        Ok(Some(4)) => Ok(MemberStatus::Inactive(InactiveReason::NotActivated)),
        Ok(Some(5)) => Ok(MemberStatus::Inactive(InactiveReason::Left)),
        Ok(_) => Err(PlatformError::Unavailable("a member without a known status".to_owned())),
        Err(Errcode::NO_PRIVILEGE) => Ok(MemberStatus::OutOfSight),
        Err(errcode) => match errcode.into() {
            PlatformError::UnknownMember => Ok(MemberStatus::Inactive(InactiveReason::Gone)),
            PlatformError::NotVisible => Ok(MemberStatus::OutOfSight),
            error => Err(error),
        },
    }
}

#[async_trait]
impl Platform for WecomPlatform {
    fn authorize_url(&self, request: AuthorizeRequest<'_>) -> Url {
        let mut url = self.settings.authorize_url.clone();
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("appid", self.settings.corp_id.as_str())
                .append_pair("redirect_uri", request.redirect_uri)
                .append_pair("response_type", "code")
                .append_pair("scope", "snsapi_base")
                .append_pair("state", request.state);
            if let Some(agent_id) = &self.settings.agent_id {
                query.append_pair("agentid", agent_id);
            }
        }
        url.set_fragment(Some("wechat_redirect"));
        url
    }

    fn consent<'q>(&self, parameter: Parameter<'_, 'q>) -> Consent<'q> {
        let given = |name| parameter(name).filter(|value| !value.is_empty());
        match (given("code"), given("errcode")) {
            (Some(code), _) => Consent::Granted { code },
            // Sent by front ends that embed WeCom's sign-in panel, not by WeCom itself.
            (None, Some(_)) => Consent::Failed,
            // WeCom reports a declined sign-in as a state without a code.
            (None, None) => Consent::Denied,
        }
    }

    async fn identify(&self, code: &str) -> Result<Person, PlatformError> {
        // WeCom issues no such codes: a call would fail, and could trigger its abuse protection.
        let well_formed = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~+/=".contains(&byte));
        if code.is_empty() || code.len() > MAX_CODE_LENGTH || !well_formed {
            return Err(PlatformError::InvalidCode);
        }
        let query = [("code", code)];
        let response: IdentityResponse = self.call(USER_INFO, Payload::Query(&query), WhenBusy::Fail).await??;
        response.person()
    }

    async fn profile(&self, person: &Person) -> Result<Profile, PlatformError> {
        match person {
            Person::Member { employee_id } => self.member_profile(employee_id).await,
            Person::Linked { corp_id, employee_id } => self.linked_profile(corp_id, employee_id).await,
            Person::Outsider => Err(PlatformError::UnknownMember),
        }
    }

    async fn status(&self, person: &Person) -> Result<MemberStatus, PlatformError> {
        match person {
            Person::Member { employee_id } => Ok(self.member(employee_id).await?.0),
            Person::Linked { corp_id, employee_id } => Ok(self.linked_profile(corp_id, employee_id).await?.status),
            Person::Outsider => Err(PlatformError::UnknownMember),
        }
    }

    fn circuit_open_for(&self) -> Option<Duration> {
        self.breakers.circuit_open_for()
    }

    fn credential_age(&self) -> Option<Duration> {
        self.tokens.age()
    }
}

#[cfg(test)]
#[cfg(feature = "demo")]
mod tests;

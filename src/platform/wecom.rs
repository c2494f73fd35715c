//! WeCom's client.
//!
//! A sign-in is up to three calls: the code to a person, the person to a profile, the department's
//! number to its name. All carry the application's token, which the platform may withdraw at any
//! time: a call that it refuses for a stale token is made once more with a new one, never twice.

use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use super::breaker::{Breaker, CallOutcome};
use super::http::{HttpClient, HttpError};
use super::{AuthorizeRequest, Consent, MemberStatus, Parameter, Person, Platform, PlatformError, Profile};
use crate::domain::clock::Clock;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::secret::Secret;
use answer::{Answer, DepartmentAnswer, Errcode, IdentityAnswer, LinkedAnswer, MemberAnswer, TokenAnswer};
use app_token::{AppToken, AppTokens, FreshToken};
use departments::Departments;

mod answer;

mod app_token;

mod departments;

/// The application's token.
const TOKEN: &str = "cgi-bin/gettoken";

/// A code to a person.
const USER_INFO: &str = "cgi-bin/auth/getuserinfo";

/// A member's profile.
const USER: &str = "cgi-bin/user/get";

/// The longest code that the platform gives; a longer one is not worth a call.
const LONGEST_CODE: usize = 512;

/// `status` of a member who may work.
const ACTIVE: i64 = 1;

/// How often a call is made again that the platform was too busy for, as it asks of its callers.
const BUSY_RETRIES: u32 = 3;

/// The pause before the first of them; each next one is twice as long.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

impl From<HttpError> for PlatformError {
    fn from(error: HttpError) -> Self {
        PlatformError::Unavailable(error.to_string())
    }
}

/// What the client needs to know.
#[derive(Debug, Clone)]
pub struct WecomSettings {
    /// The main corporation.
    pub corp_id: CorpId,
    /// The application; none: authorize URLs do not name it.
    pub agent_id: Option<String>,
    /// The application's secret.
    pub secret: Secret<String>,
    /// Where browsers are sent.
    pub authorize_url: Url,
    /// The server API; a path in it is kept as a prefix.
    pub api_url: Url,
    /// Longest wait for one call.
    pub timeout: Duration,
}

/// WeCom, or whatever speaks like it.
pub struct WecomPlatform {
    settings: WecomSettings,
    http: HttpClient,
    breakers: Breakers,
    tokens: AppTokens,
    departments: Departments,
}

/// One breaker for each call: an API that answers says nothing about one that does not.
struct Breakers {
    /// Without these nobody can sign in.
    needed: [(&'static str, Breaker); 3],
    others: Breaker,
}

impl Breakers {
    fn new(clock: &Clock, timeout: Duration) -> Self {
        let breaker = || Breaker::new(clock.clone(), timeout);
        Self { needed: [TOKEN, USER_INFO, USER].map(|path| (path, breaker())), others: breaker() }
    }

    fn of(&self, url: &Url) -> &Breaker {
        let found = self.needed.iter().find(|(path, _)| url.path().ends_with(path));
        found.map_or(&self.others, |(_, breaker)| breaker)
    }

    fn circuit_open_for(&self) -> Option<Duration> {
        self.needed.iter().filter_map(|(_, breaker)| breaker.circuit_open_for()).max()
    }
}

/// What is sent along with a call.
#[derive(Clone, Copy)]
enum Payload<'a> {
    /// Parameters of a GET.
    Query(&'a [(&'a str, &'a str)]),
    /// The body of a POST.
    Json(&'a Value),
}

/// Whether a call may be made again that the platform was too busy for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenBusy {
    /// It only reads.
    Retry,
    /// It may have spent the code all the same.
    GiveUp,
}

impl WecomPlatform {
    /// A client on the machine's clock. Calls nobody yet; fails only where TLS is needed and the system
    /// has no root certificates.
    pub fn new(settings: WecomSettings) -> Result<Self, PlatformError> {
        Self::with_clock(settings, Clock::system())
    }

    /// The same on another clock.
    pub fn with_clock(settings: WecomSettings, clock: Clock) -> Result<Self, PlatformError> {
        let http = HttpClient::new(&settings.api_url, settings.timeout)?;
        let tokens = AppTokens::new(clock.clone());
        let breakers = Breakers::new(&clock, settings.timeout);
        Ok(Self { settings, http, breakers, tokens, departments: Departments::new(clock) })
    }

    /// One call with the application's token, replayed once when that token has gone stale.
    async fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        payload: Payload<'_>,
        when_busy: WhenBusy,
    ) -> Result<Answer<T>, PlatformError> {
        let token = self.token().await?;
        match self.call_with(&token, path, payload, when_busy).await? {
            Err(errcode) if errcode.is_stale_token() => {
                self.tokens.refuse(&token);
                let token = self.token().await?;
                self.call_with(&token, path, payload, when_busy).await
            }
            answer => Ok(answer),
        }
    }

    async fn call_with<T: DeserializeOwned>(
        &self,
        token: &AppToken,
        path: &str,
        payload: Payload<'_>,
        when_busy: WhenBusy,
    ) -> Result<Answer<T>, PlatformError> {
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
            WhenBusy::Retry => self.ask_patiently(&url, body).await,
            WhenBusy::GiveUp => self.ask(&url, body).await,
        }
    }

    async fn token(&self) -> Result<AppToken, PlatformError> {
        let fetch = || async {
            let mut url = self.endpoint(TOKEN);
            url.query_pairs_mut()
                .append_pair("corpid", self.settings.corp_id.as_str())
                .append_pair("corpsecret", self.settings.secret.reveal());
            let TokenAnswer { access_token, expires_in } = self.ask_patiently(&url, None).await??;
            if access_token.is_empty() {
                return Err(PlatformError::Unavailable("an empty access token".to_owned()));
            }
            Ok(FreshToken { token: Secret::new(access_token), lifetime: Duration::from_secs(expires_in) })
        };
        self.tokens.current(fetch).await
    }

    /// Asks again, a few times, while the platform says that it is busy.
    async fn ask_patiently<T: DeserializeOwned>(
        &self,
        url: &Url,
        body: Option<&Value>,
    ) -> Result<Answer<T>, PlatformError> {
        for retry in 0..BUSY_RETRIES {
            match self.ask(url, body).await? {
                Err(Errcode::BUSY) => tokio::time::sleep(BUSY_PAUSE * 2_u32.pow(retry)).await,
                answer => return Ok(answer),
            }
        }
        self.ask(url, body).await
    }

    /// One request, unless the platform is being left alone.
    async fn ask<T: DeserializeOwned>(&self, url: &Url, body: Option<&Value>) -> Result<Answer<T>, PlatformError> {
        let breaker = self.breakers.of(url);
        breaker.admit()?;
        let sent = match body {
            None => self.http.get(url.clone()).await,
            Some(body) => self.http.post(url.clone(), body).await,
        };
        let answer = sent.map_err(PlatformError::from).and_then(|bytes| answer::read(&bytes));
        breaker.note(match &answer {
            Ok(Ok(_)) => CallOutcome::Success,
            Ok(Err(errcode)) => errcode.health(),
            Err(_) => CallOutcome::Failure,
        });
        answer
    }

    fn endpoint(&self, path: &str) -> Url {
        let mut url = self.settings.api_url.clone();
        let path = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    /// A department's name; empty where it is not told, which is no reason to keep anybody out.
    async fn department(&self, id: i64) -> String {
        if let Some(name) = self.departments.name(id) {
            return name;
        }
        match self.ask_for_department(id).await {
            Ok(name) => {
                self.departments.remember(id, &name);
                name
            }
            Err(error) => {
                tracing::warn!(department.id = id, "a department's name is missing: {error}");
                String::new()
            }
        }
    }

    async fn ask_for_department(&self, id: i64) -> Result<String, PlatformError> {
        let id_text = id.to_string();
        let query = [("id", id_text.as_str())];
        match self.call("cgi-bin/department/get", Payload::Query(&query), WhenBusy::Retry).await? {
            Ok(DepartmentAnswer { department }) => Ok(department.name),
            Err(Errcode::OUT_OF_SIGHT | Errcode::NO_DEPARTMENT) => Ok(String::new()),
            Err(errcode) => Err(errcode.into()),
        }
    }

    async fn member_profile(&self, employee_id: &EmployeeId) -> Result<Profile, PlatformError> {
        let asked = employee_id.as_str();
        let query = [("userid", asked)];
        let member: MemberAnswer = match self.call(USER, Payload::Query(&query), WhenBusy::Retry).await? {
            Ok(member) => member,
            // They may sign in all the same: only what they are called stays unknown.
            Err(Errcode::OUT_OF_SIGHT) => return Ok(Profile::unnamed()),
            Err(errcode) => return Err(errcode.into()),
        };
        if !member.userid.eq_ignore_ascii_case(asked) {
            return Err(PlatformError::Unavailable("the profile of another member".to_owned()));
        }
        let department = match member.main_department() {
            Some(id) => self.department(id).await,
            None => String::new(),
        };
        let status = if member.status == Some(ACTIVE) { MemberStatus::Active } else { MemberStatus::Inactive };
        Ok(Profile { name: member.name, department, avatar: member.avatar, status })
    }

    /// A connected corporation's member: the platform tells a name at most, and vouches for them by having
    /// answered for their code.
    async fn linked_profile(&self, corp_id: &CorpId, employee_id: &EmployeeId) -> Result<Profile, PlatformError> {
        let body = json!({ "userid": format!("{corp_id}/{employee_id}") });
        let path = "cgi-bin/linkedcorp/user/get";
        match self.call::<LinkedAnswer>(path, Payload::Json(&body), WhenBusy::Retry).await? {
            Ok(LinkedAnswer { user_info }) => Ok(Profile { name: user_info.name, ..Profile::unnamed() }),
            Err(errcode) if errcode.health() == CallOutcome::Success => Ok(Profile::unnamed()),
            Err(errcode) => Err(errcode.into()),
        }
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
            // Not the platform itself but a front end that shows its sign-in panel forwards these.
            (None, Some(_)) => Consent::Failed,
            // The platform's own sign of a refusal is a state without a code.
            (None, None) => Consent::Denied,
        }
    }

    async fn identify(&self, code: &str) -> Result<Person, PlatformError> {
        // What the platform would never give is not worth a call, and must not provoke whatever guards it.
        let plain = code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~+/=".contains(&byte));
        if code.is_empty() || code.len() > LONGEST_CODE || !plain {
            return Err(PlatformError::InvalidCode);
        }
        let query = [("code", code)];
        let answer: IdentityAnswer = self.call(USER_INFO, Payload::Query(&query), WhenBusy::GiveUp).await??;
        answer.person()
    }

    async fn profile(&self, person: &Person) -> Result<Profile, PlatformError> {
        match person {
            Person::Member { employee_id } => self.member_profile(employee_id).await,
            Person::Linked { corp_id, employee_id } => self.linked_profile(corp_id, employee_id).await,
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

//! WeCom's client.
//!
//! A sign-in is up to three calls: the code to a person, the person to a profile, the department's
//! number to its name. All carry the application's token, which the platform may withdraw at any
//! time: a call that it refuses for a stale token is made once more with a new one, never twice.

use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use url::Url;

use super::http::{HttpClient, HttpError};
use super::{AuthorizeRequest, MemberStatus, Person, Platform, PlatformError, Profile};
use crate::domain::clock::Clock;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::secret::Secret;
use answer::{Answer, DepartmentAnswer, Errcode, IdentityAnswer, MemberAnswer, TokenAnswer};
use app_token::{AppToken, AppTokens, FreshToken};
use departments::Departments;

mod answer;

mod app_token;

mod departments;

/// The longest code that the platform gives; a longer one is not worth a call.
const LONGEST_CODE: usize = 512;

/// `status` of a member who may work.
const ACTIVE: i64 = 1;

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
    tokens: AppTokens,
    departments: Departments,
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
        Ok(Self { settings, http, tokens, departments: Departments::new(clock) })
    }

    /// One call with the application's token, replayed once when that token has gone stale.
    async fn call<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<Answer<T>, PlatformError> {
        let token = self.token().await?;
        match self.call_with(&token, path, query).await? {
            Err(errcode) if errcode.is_stale_token() => {
                self.tokens.refuse(&token).await;
                let token = self.token().await?;
                self.call_with(&token, path, query).await
            }
            answer => Ok(answer),
        }
    }

    async fn call_with<T: DeserializeOwned>(
        &self,
        token: &AppToken,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Answer<T>, PlatformError> {
        let mut url = self.endpoint(path);
        url.query_pairs_mut().append_pair("access_token", token.reveal()).extend_pairs(query);
        answer::read(&self.http.get(url).await?)
    }

    async fn token(&self) -> Result<AppToken, PlatformError> {
        let fetch = || async {
            let mut url = self.endpoint("cgi-bin/gettoken");
            url.query_pairs_mut()
                .append_pair("corpid", self.settings.corp_id.as_str())
                .append_pair("corpsecret", self.settings.secret.reveal());
            let TokenAnswer { access_token, expires_in } = answer::read(&self.http.get(url).await?)??;
            if access_token.is_empty() {
                return Err(PlatformError::Unavailable("an empty access token".to_owned()));
            }
            Ok(FreshToken { token: Secret::new(access_token), lifetime: Duration::from_secs(expires_in) })
        };
        self.tokens.current(fetch).await
    }

    fn endpoint(&self, path: &str) -> Url {
        let mut url = self.settings.api_url.clone();
        let path = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    /// A department's name; empty where the application may not see it.
    async fn department(&self, id: i64) -> Result<String, PlatformError> {
        if let Some(name) = self.departments.name(id) {
            return Ok(name);
        }
        let name = match self.call("cgi-bin/department/get", &[("id", &id.to_string())]).await? {
            Ok(DepartmentAnswer { department }) => department.name,
            Err(Errcode::OUT_OF_SIGHT | Errcode::NO_DEPARTMENT) => String::new(),
            Err(errcode) => return Err(errcode.into()),
        };
        self.departments.remember(id, &name);
        Ok(name)
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

    async fn identify(&self, code: &str) -> Result<Person, PlatformError> {
        if code.is_empty() || code.len() > LONGEST_CODE {
            return Err(PlatformError::InvalidCode);
        }
        let answer: IdentityAnswer = self.call("cgi-bin/auth/getuserinfo", &[("code", code)]).await??;
        answer.person()
    }

    async fn profile(&self, employee_id: &EmployeeId) -> Result<Profile, PlatformError> {
        let asked = employee_id.as_str();
        let member: MemberAnswer = match self.call("cgi-bin/user/get", &[("userid", asked)]).await? {
            Ok(member) => member,
            // They may sign in all the same: only what they are called stays unknown.
            Err(Errcode::OUT_OF_SIGHT) => {
                return Ok(Profile {
                    name: asked.to_owned(),
                    department: String::new(),
                    avatar: String::new(),
                    status: MemberStatus::Active,
                });
            }
            Err(errcode) => return Err(errcode.into()),
        };
        if !member.userid.eq_ignore_ascii_case(asked) {
            return Err(PlatformError::Unavailable("the profile of another member".to_owned()));
        }
        let department = match member.main_department() {
            Some(id) => self.department(id).await?,
            None => String::new(),
        };
        let status = if member.status == Some(ACTIVE) { MemberStatus::Active } else { MemberStatus::Inactive };
        let name = if member.name.is_empty() { asked.to_owned() } else { member.name };
        Ok(Profile { name, department, avatar: member.avatar, status })
    }
}

#[cfg(test)]
mod tests;

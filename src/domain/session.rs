//! The session record that stands behind each token.

use serde::{Deserialize, Serialize};

use super::clock::Timestamp;
use super::employee::{CorpId, EmployeeId};
use super::identifier;
use super::role::RoleName;

identifier! {
    /// A session's identifier; also the token's `jti`.
    SessionId
}

identifier! {
    /// A signing key's identifier; the `kid` of what it signs.
    KeyId
}

/// What a token opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Everything that the roles allow.
    Full,
    /// Half-authenticated: only the binding of a one-time-password device, `me` and `logout`.
    OtpBinding,
    /// The same after it has bound one: a full session has taken its place, and it binds no other.
    Spent,
}

impl Stage {
    /// As the token's claim spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Full => "full",
            Stage::OtpBinding => "otp_binding",
            Stage::Spent => "spent",
        }
    }
}

/// How a person proved who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginMethod {
    /// Redirect to the platform and back.
    Oauth2,
    /// QR code scanned with the phone.
    Qrcode,
    /// Bound account of a connected corporation.
    Bind,
    /// Local agent password.
    Password,
    /// Development route.
    Dev,
}

impl LoginMethod {
    /// Every method, for metrics that must exist before the first sign-in.
    pub const ALL: [LoginMethod; 5] = [Self::Oauth2, Self::Qrcode, Self::Bind, Self::Password, Self::Dev];

    /// Parses the spelling of [`LoginMethod::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == word)
    }

    /// As answers and metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            LoginMethod::Oauth2 => "oauth2",
            LoginMethod::Qrcode => "qrcode",
            LoginMethod::Bind => "bind",
            LoginMethod::Password => "password",
            LoginMethod::Dev => "dev",
        }
    }
}

/// Where a person signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginSource {
    /// The employee web client.
    H5,
    /// The agent client.
    Itagent,
    /// The administration client.
    Itadmin,
    /// A scanned QR code.
    Qrcode,
    /// The agent login route.
    Agent,
    /// The development route.
    Dev,
}

impl LoginSource {
    /// Every source.
    pub const ALL: [LoginSource; 6] = [Self::H5, Self::Itagent, Self::Itadmin, Self::Qrcode, Self::Agent, Self::Dev];

    /// Parses the spelling of [`LoginSource::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == word)
    }

    /// As claims, answers and headers spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            LoginSource::H5 => "h5",
            LoginSource::Itagent => "itagent",
            LoginSource::Itadmin => "itadmin",
            LoginSource::Qrcode => "qrcode",
            LoginSource::Agent => "agent",
            LoginSource::Dev => "dev",
        }
    }
}

/// Counts the changes of a record; a change names the version that it saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub i64);

impl Version {
    /// Of a record that has just been made.
    pub const FIRST: Version = Version(1);

    /// Of the same record after one more change.
    pub fn next(self) -> Version {
        Version(self.0.saturating_add(1))
    }
}

/// A signed-in person on one device. Authoritative for roles, active role and revocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Which session.
    pub id: SessionId,
    /// How often it has changed.
    pub version: Version,
    /// The person's corporation.
    pub corp_id: CorpId,
    /// The person.
    pub employee_id: EmployeeId,
    /// Display name.
    pub name: String,
    /// Department's name, empty if unknown.
    pub department: String,
    /// Picture's address, empty if unknown.
    pub avatar: String,
    /// Roles held.
    pub roles: Vec<RoleName>,
    /// The active one of them.
    pub current_role: RoleName,
    /// How they signed in.
    pub login_method: LoginMethod,
    /// Where they signed in.
    pub login_source: LoginSource,
    /// What the token opens.
    pub stage: Stage,
    /// Until when a one-time password that was given counts as fresh.
    #[serde(default)]
    pub stepped_up_until: Option<Timestamp>,
    /// When the session began.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The key that signs its token: the session ends with it. Records of older versions do not tell.
    #[serde(default)]
    pub key_id: Option<KeyId>,
    /// The local password that opened it: the session ends with it.
    #[serde(default)]
    pub password_id: Option<String>,
    /// Whether the person had never signed in with such a device before.
    #[serde(default)]
    pub new_device: bool,
    /// The device's address at sign-in.
    pub address: String,
    /// The device's `User-Agent` at sign-in.
    pub user_agent: String,
}

impl Session {
    /// A session of the agent `a2001` for tests, which change what they are about. It never expires.
    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            id: SessionId::new("s1"),
            version: Version::FIRST,
            corp_id: CorpId::new("wwdemo"),
            employee_id: EmployeeId::new("a2001"),
            name: "Alice Chen".to_owned(),
            department: String::new(),
            avatar: String::new(),
            roles: vec![RoleName::new("agent"), RoleName::new("user")],
            current_role: RoleName::new("agent"),
            login_method: LoginMethod::Qrcode,
            login_source: LoginSource::Qrcode,
            stage: Stage::Full,
            stepped_up_until: None,
            issued_at: Timestamp::from_seconds(0),
            expires_at: Timestamp::from_millis(i64::MAX),
            key_id: None,
            password_id: None,
            new_device: false,
            address: String::new(),
            user_agent: String::new(),
        }
    }

    /// Whether the person holds this role.
    pub fn holds(&self, role: &str) -> bool {
        self.roles.iter().any(|held| held.as_str() == role)
    }

    /// Whether a one-time password was given lately.
    pub fn is_stepped_up(&self, now: Timestamp) -> bool {
        self.stepped_up_until.is_some_and(|until| now < until)
    }

    /// Whether the session is over by the clock.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }
}

/// Why a session is over; the label of `sessions_ended_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// Its owner logged out.
    Logout,
    /// Its owner ended it from another session.
    Owner,
    /// An operator ended it.
    Operator,
    /// The person lost their last role or was disabled.
    RolesLost,
    /// The key that signed its token was removed.
    KeyRemoved,
    /// Its time ran out.
    Expired,
}

impl EndCause {
    /// Every cause.
    pub const ALL: [EndCause; 6] =
        [Self::Logout, Self::Owner, Self::Operator, Self::RolesLost, Self::KeyRemoved, Self::Expired];

    /// As metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            EndCause::Logout => "logout",
            EndCause::Owner => "owner",
            EndCause::Operator => "operator",
            EndCause::RolesLost => "roles_lost",
            EndCause::KeyRemoved => "key_removed",
            EndCause::Expired => "expired",
        }
    }
}

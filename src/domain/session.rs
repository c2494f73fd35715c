//! The session record behind each token.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::{RECORD_LEEWAY, Timestamp};
use super::employee::{CorpId, Employee, EmployeeId};
use super::identifier;
use super::link::PlatformAccount;
use super::role::RoleName;

identifier! {
    /// A session's identifier; also the token's `jti`.
    SessionId
}

identifier! {
    /// A signing key's identifier; the `kid` of its tokens.
    KeyId
}

/// What a token gives access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Everything that the roles allow.
    Full,
    /// Half-authenticated: only binding a one-time-password device, `me` and `logout`.
    OtpBinding,
    /// Half-authenticated, after it has bound a device: a full session replaces it, and it binds no other device.
    Spent,
}

impl Stage {
    /// The value of the `stage` claim.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Full => "full",
            Stage::OtpBinding => "otp_binding",
            Stage::Spent => "spent",
        }
    }
}

/// How the employee signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginMethod {
    /// OAuth2 redirect through the platform.
    Oauth2,
    /// QR code scanned with a phone.
    Qrcode,
    /// Account binding of a connected corporation.
    Bind,
    /// Local agent password.
    Password,
    /// Development sign-in.
    Dev,
}

impl LoginMethod {
    /// Every method; metrics exist before the first sign-in.
    pub const ALL: [LoginMethod; 5] = [Self::Oauth2, Self::Qrcode, Self::Bind, Self::Password, Self::Dev];

    /// Parses the spelling of [`LoginMethod::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == word)
    }

    /// Whether the messaging platform identified the employee at this sign-in. A development sign-in stands in for it.
    pub fn is_platform_sign_in(self) -> bool {
        match self {
            LoginMethod::Oauth2 | LoginMethod::Qrcode | LoginMethod::Dev => true,
            LoginMethod::Bind | LoginMethod::Password => false,
        }
    }

    /// The name in responses and metrics.
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

/// Where the employee signed in.
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

    /// The name in claims, responses and headers.
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

/// The version of a record. A conditional write names the version that it read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub i64);

impl Version {
    /// The version of a new record.
    pub const FIRST: Version = Version(1);

    /// The version after one more change.
    pub fn next(self) -> Version {
        Version(self.0.saturating_add(1))
    }
}

/// An employee's sign-in session on one device. Authoritative for roles, active role and revocation.
///
/// In this order: with many sessions the cost is in cache misses, and what the rules of nearly every request read comes first,
/// side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Session {
    /// What the token gives access to.
    pub stage: Stage,
    /// The sign-in method.
    pub login_method: LoginMethod,
    /// Where the employee signed in.
    pub login_source: LoginSource,
    /// Whether the employee had not signed in with such a device before.
    #[serde(default)]
    pub new_device: bool,
    /// The active role.
    pub current_role: RoleName,
    /// The held roles.
    pub roles: Vec<RoleName>,
    /// The employee's id.
    pub employee_id: EmployeeId,
    /// The employee's corporation.
    pub corp_id: CorpId,
    /// The session id, the token's `jti`.
    pub id: SessionId,
    /// The record's version.
    pub version: Version,
    /// When the session began.
    pub issued_at: Timestamp,
    /// When the session expires.
    pub expires_at: Timestamp,
    /// Until when the session is stepped up.
    #[serde(default)]
    pub stepped_up_until: Option<Timestamp>,
    /// When the session was stepped up. Absent in records of older versions.
    #[serde(default)]
    pub stepped_up_at: Option<Timestamp>,
    /// When the platform identified the employee. `None` for a password or a bind, and in records of older versions.
    #[serde(default)]
    pub platform_sign_in_at: Option<Timestamp>,
    /// Display name.
    pub name: String,
    /// Department name; empty if unknown.
    pub department: String,
    /// Picture URL; empty if unknown.
    pub avatar: String,
    /// The key that signs the token; the session ends with it. Absent in records of older versions.
    #[serde(default)]
    pub key_id: Option<KeyId>,
    /// The local password used at sign-in; the session ends with it.
    #[serde(default)]
    pub password_id: Option<String>,
    /// The account of a connected corporation that signed in as the employee; the session ends with its link.
    #[serde(default)]
    pub platform_account: Option<PlatformAccount>,
    /// The device's address at sign-in.
    pub address: Box<str>,
    /// The device's `User-Agent` at sign-in.
    pub user_agent: Box<str>,
}

impl Session {
    /// A session of the agent `a2001` for tests, which change what they are about. It never expires.
    #[cfg(any(test, feature = "demo"))]
    pub fn sample() -> Self {
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
            platform_sign_in_at: None,
            stage: Stage::Full,
            stepped_up_until: None,
            stepped_up_at: None,
            issued_at: Timestamp::from_seconds(0),
            expires_at: Timestamp::from_millis(i64::MAX),
            key_id: None,
            password_id: None,
            platform_account: None,
            new_device: false,
            address: Box::default(),
            user_agent: Box::default(),
        }
    }

    /// Whether the session holds this role.
    pub fn holds(&self, role: &str) -> bool {
        self.roles.iter().any(|held| held.as_str() == role)
    }

    /// Whether the session began with nothing but an employee id: `bind` with `bind.proof = "none"`.
    pub fn is_unproven(&self) -> bool {
        self.login_method == LoginMethod::Bind && self.platform_account.is_none()
    }

    /// Whether the session is stepped up now. A clock that was set back does not extend the time.
    pub fn is_stepped_up(&self, now: Timestamp) -> bool {
        self.stepped_up_until.is_some_and(|until| now < until)
            && !self.stepped_up_at.is_some_and(|at| at.is_ahead_of(now, RECORD_LEEWAY))
    }

    /// When the session's token is valid.
    pub fn lifetime(&self) -> SessionLifetime {
        SessionLifetime { issued_at: self.issued_at, expires_at: self.expires_at }
    }

    /// Whether the session has expired.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }
}

/// When a session's token is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLifetime {
    issued_at: Timestamp,
    /// When the session expires.
    pub expires_at: Timestamp,
}

impl SessionLifetime {
    /// Whether a request with the token is let in at `now`: it was not issued in the future, and has not expired.
    pub fn contains(self, now: Timestamp, leeway: Duration) -> bool {
        now < self.expires_at && !self.issued_at.is_ahead_of(now, leeway)
    }
}

/// Why a session ended; the label of `sessions_ended_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// The employee logged out.
    Logout,
    /// The employee ended it from another session.
    Owner,
    /// An operator or administrator ended it, or the gateway because the sign-in's password or device changed.
    Operator,
    /// The employee lost the last role, or the session its last one that is not above the lost one.
    RolesLost,
    /// An operator disabled the employee.
    Disabled,
    /// The platform called the employee, or the account of the session's link, inactive.
    Left,
    /// The employee was removed.
    Removed,
    /// The link that the session came through was removed, or its automatic approval withdrawn.
    Unlinked,
    /// The key that signed its token was removed.
    KeyRemoved,
    /// The session expired.
    Expired,
}

impl EndCause {
    /// Every cause; metrics exist before the first session ends.
    pub const ALL: [EndCause; 10] = [
        Self::Logout,
        Self::Owner,
        Self::Operator,
        Self::RolesLost,
        Self::Disabled,
        Self::Left,
        Self::Removed,
        Self::Unlinked,
        Self::KeyRemoved,
        Self::Expired,
    ];

    /// Why an employee who cannot sign in has no session; `None` for one who was removed.
    pub fn of_barred(employee: Option<&Employee>) -> Self {
        match employee {
            None => EndCause::Removed,
            Some(employee) if employee.inactive.is_some() => EndCause::Left,
            Some(_) => EndCause::Disabled,
        }
    }

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            EndCause::Logout => "logout",
            EndCause::Owner => "owner",
            EndCause::Operator => "operator",
            EndCause::RolesLost => "roles_lost",
            EndCause::Disabled => "disabled",
            EndCause::Left => "left",
            EndCause::Removed => "removed",
            EndCause::Unlinked => "unlinked",
            EndCause::KeyRemoved => "key_removed",
            EndCause::Expired => "expired",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    #[test]
    fn a_step_up_is_not_longer_when_the_clock_is_set_back() {
        let until = NOW.plus(Duration::from_secs(300));
        let session = Session { stepped_up_at: Some(NOW), stepped_up_until: Some(until), ..Session::sample() };
        assert!(session.is_stepped_up(NOW));
        assert!(session.is_stepped_up(NOW.minus(RECORD_LEEWAY)), "a clock that is corrected");
        assert!(!session.is_stepped_up(until));
        assert!(!session.is_stepped_up(NOW.minus(Duration::from_secs(3600))));
        let older = Session { stepped_up_at: None, ..session };
        assert!(older.is_stepped_up(NOW), "a record of an older version");
    }

    #[test]
    fn a_lifetime_ends_at_its_expiry_and_does_not_begin_in_the_future() {
        let (leeway, end) = (Duration::from_secs(30), NOW.plus(Duration::from_secs(60)));
        let lifetime = Session { issued_at: NOW, expires_at: end, ..Session::sample() }.lifetime();
        for (case, now, valid) in [
            ("at its begin", NOW, true),
            ("within the leeway", NOW.minus(leeway), true),
            ("in the future", NOW.minus(leeway).minus(Duration::from_millis(1)), false),
            ("just before its end", end.minus(Duration::from_millis(1)), true),
            ("at its end", end, false),
            ("ten years later", NOW.plus(Duration::from_secs(315_360_000)), false),
        ] {
            assert_eq!(lifetime.contains(now, leeway), valid, "{case}");
        }
    }
}

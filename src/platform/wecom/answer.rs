//! What WeCom's answers say: `errcode` decides, the texts beside it never do.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::super::breaker::CallOutcome;
use super::super::{Person, PlatformError};
use crate::domain::employee::{CorpId, EmployeeId};

/// The platform's own number for what went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errcode(pub i64);

impl Errcode {
    /// Too busy; worth another try.
    pub const BUSY: Errcode = Errcode(-1);
    /// The member or department is outside what the application may see.
    pub const OUT_OF_SIGHT: Errcode = Errcode(60011);
    /// No such department.
    pub const NO_DEPARTMENT: Errcode = Errcode(60003);

    /// Whether the application's token was refused. The platform uses either number for a stale one.
    pub fn is_stale_token(self) -> bool {
        matches!(self.0, 40014 | 42001)
    }

    /// What it says about the platform itself.
    pub fn health(self) -> CallOutcome {
        match self.0 {
            -1 => CallOutcome::Failure,
            45009 | 45033 => CallOutcome::Throttled,
            _ => CallOutcome::Success,
        }
    }
}

impl From<Errcode> for PlatformError {
    fn from(errcode: Errcode) -> Self {
        let setting = match errcode.0 {
            40029 | 42003 => return PlatformError::InvalidCode,
            40003 | 46004 | 60111 => return PlatformError::UnknownMember,
            50002 | 60021 => return PlatformError::NotVisible,
            40001 | 40091 => "platform.secret_file",
            40013 => "platform.corp_id",
            50001 => "server.public_url (its host must be a trusted domain of the application)",
            50003 => "platform.agent_id (the application is disabled)",
            48002 => "platform.agent_id (the application may not call this API)",
            60020 => "the trusted IP addresses of the application (on the platform's side)",
            other => return PlatformError::Unavailable(format!("errcode {other}")),
        };
        PlatformError::Configuration { setting, errcode: errcode.0 }
    }
}

/// One call's outcome: its fields, or the platform's refusal.
pub type Answer<T> = Result<T, Errcode>;

/// Reads an answer. An absent `errcode` means success: some calls leave it out.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<Answer<T>, PlatformError> {
    // Only an object: a list would otherwise be read as the fields in their order.
    let fields: Map<String, Value> = serde_json::from_slice(body).map_err(|_| nonsense())?;
    let errcode = match fields.get("errcode") {
        None => 0,
        Some(code) => code.as_i64().ok_or_else(nonsense)?,
    };
    if errcode != 0 {
        return Ok(Err(Errcode(errcode)));
    }
    T::deserialize(Value::Object(fields)).map(Ok).map_err(|_| nonsense())
}

/// The parser's own words are left out: they may quote the answer, which may hold a token.
fn nonsense() -> PlatformError {
    PlatformError::Unavailable("an answer that cannot be understood".to_owned())
}

/// `gettoken`
#[derive(Deserialize)]
pub struct TokenAnswer {
    /// The application's token.
    pub access_token: String,
    /// Its lifetime in seconds.
    pub expires_in: u64,
}

/// `getuserinfo`: lower-case keys from the current path, the others from the legacy one.
#[derive(Deserialize)]
pub struct IdentityAnswer {
    #[serde(default, alias = "UserId")]
    userid: Option<String>,
    #[serde(default, alias = "OpenId")]
    openid: Option<String>,
}

impl IdentityAnswer {
    /// Whom the answer names. One that names nobody, or in no proper form, is refused.
    pub fn person(self) -> Result<Person, PlatformError> {
        let present = |field: Option<String>| field.filter(|text| !text.is_empty());
        let Some(userid) = present(self.userid) else {
            return match present(self.openid) {
                Some(_) => Ok(Person::Outsider),
                None => Err(PlatformError::Unavailable("an answer that names nobody".to_owned())),
            };
        };
        // `/` is not legal in a userid: what stands before the first one is a connected corporation.
        match userid.split_once('/') {
            None if EmployeeId::is_well_formed(&userid) => Ok(Person::Member { employee_id: EmployeeId::new(userid) }),
            Some((corp, id)) if CorpId::is_well_formed(corp) && EmployeeId::is_well_formed(id) => {
                Ok(Person::Linked { corp_id: CorpId::new(corp), employee_id: EmployeeId::new(id) })
            }
            _ => Err(PlatformError::Unavailable("a member's identifier of an unknown form".to_owned())),
        }
    }
}

/// `user/get`
#[derive(Deserialize)]
pub struct MemberAnswer {
    /// The identifier as the platform spells it.
    pub userid: String,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// Picture's address; only applications created before mid-2022 are told.
    #[serde(default)]
    pub avatar: String,
    /// 1 is active; 2 disabled, 4 not activated, others unknown.
    #[serde(default)]
    pub status: Option<i64>,
    #[serde(default)]
    main_department: Option<i64>,
    #[serde(default)]
    department: Vec<i64>,
}

impl MemberAnswer {
    /// The department that counts: the main one, else the first.
    pub fn main_department(&self) -> Option<i64> {
        self.main_department.or_else(|| self.department.first().copied())
    }
}

/// `department/get`
#[derive(Deserialize)]
pub struct DepartmentAnswer {
    /// The one asked for.
    pub department: Department,
}

/// The part of a department that is used.
#[derive(Deserialize)]
pub struct Department {
    /// Display name. Absent for applications that may see identifiers only.
    #[serde(default)]
    pub name: String,
}

/// `linkedcorp/user/get`
#[derive(Deserialize)]
pub struct LinkedAnswer {
    /// The one asked for.
    pub user_info: LinkedMember,
}

/// The part of a connected corporation's member that is used.
#[derive(Deserialize)]
pub struct LinkedMember {
    /// Display name.
    #[serde(default)]
    pub name: String,
}

//! WeCom's responses. Only `errcode` decides; `errmsg` is never evaluated.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::super::breaker::CallOutcome;
use super::super::{Person, PlatformError};
use crate::domain::employee::{CorpId, EmployeeId};

/// WeCom's error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errcode(pub i64);

impl Errcode {
    /// The system is busy: retry.
    pub const BUSY: Errcode = Errcode(-1);
    /// The application may not see the member or department.
    pub const NO_PRIVILEGE: Errcode = Errcode(60011);
    /// No such department.
    pub const NO_DEPARTMENT: Errcode = Errcode(60003);

    /// Whether the access token is invalid or expired. WeCom uses either number for a stale token.
    pub fn is_stale_token(self) -> bool {
        matches!(self.0, 40014 | 42001)
    }

    /// What the number means for the circuit breaker.
    pub fn outcome(self) -> CallOutcome {
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

/// A response's fields, or WeCom's error number.
pub type WecomResult<T> = Result<T, Errcode>;

/// Parses a response. A missing `errcode` means success: some calls omit it.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<WecomResult<T>, PlatformError> {
    // Objects only: serde would also read a list as the fields in order.
    let fields: Map<String, Value> = serde_json::from_slice(body).map_err(|_| invalid_response())?;
    let errcode = match fields.get("errcode") {
        None => 0,
        Some(code) => code.as_i64().ok_or_else(invalid_response)?,
    };
    if errcode != 0 {
        return Ok(Err(Errcode(errcode)));
    }
    T::deserialize(Value::Object(fields)).map(Ok).map_err(|_| invalid_response())
}

/// Leaves out the parser's message: it may quote the response, which may contain a token.
fn invalid_response() -> PlatformError {
    PlatformError::Unavailable("invalid response".to_owned())
}

/// `gettoken`
#[derive(Deserialize)]
pub struct TokenResponse {
    pub(super) access_token: String,
    /// In seconds.
    pub(super) expires_in: u64,
}

/// `getuserinfo`: lower-case keys from the current path, the others from the legacy one.
#[derive(Deserialize)]
pub struct IdentityResponse {
    #[serde(default, alias = "UserId")]
    userid: Option<String>,
    #[serde(default, alias = "OpenId")]
    openid: Option<String>,
}

impl IdentityResponse {
    /// The identified person. Fails if the response identifies no one or has a malformed ID.
    pub fn person(self) -> Result<Person, PlatformError> {
        let present = |field: Option<String>| field.filter(|text| !text.is_empty());
        let Some(userid) = present(self.userid) else {
            return match present(self.openid) {
                Some(_) => Ok(Person::Outsider),
                None => Err(PlatformError::Unavailable("response without a user".to_owned())),
            };
        };
        // A userid cannot contain `/`: the part before it is a connected corporation.
        match userid.split_once('/') {
            None if EmployeeId::is_well_formed(&userid) => Ok(Person::Member { employee_id: EmployeeId::new(userid) }),
            Some((corp, id)) if CorpId::is_well_formed(corp) && EmployeeId::is_well_formed(id) => {
                Ok(Person::Linked { corp_id: CorpId::new(corp), employee_id: EmployeeId::new(id) })
            }
            _ => Err(PlatformError::Unavailable("malformed userid".to_owned())),
        }
    }
}

/// `user/get`
#[derive(Deserialize)]
pub struct MemberResponse {
    /// In WeCom's spelling, which may differ in case.
    pub(super) userid: String,
    #[serde(default)]
    pub(super) name: String,
    /// Sent only to applications created before mid-2022.
    #[serde(default)]
    pub(super) avatar: String,
    /// 1 active, 2 disabled, 4 not activated, 5 left.
    #[serde(default)]
    pub(super) status: Option<i64>,
    #[serde(default)]
    main_department: Option<i64>,
    #[serde(default)]
    department: Vec<i64>,
}

impl MemberResponse {
    /// The main department, or the first one if none is marked as main.
    pub fn main_department(&self) -> Option<i64> {
        self.main_department.or_else(|| self.department.first().copied())
    }
}

/// `department/get`
#[derive(Deserialize)]
pub struct DepartmentResponse {
    pub(super) department: Department,
}

/// A department; its other fields are ignored.
#[derive(Deserialize)]
pub struct Department {
    /// Missing for applications that may see IDs only.
    #[serde(default)]
    pub(super) name: String,
}

/// `linkedcorp/user/get`
#[derive(Deserialize)]
pub struct LinkedMemberResponse {
    pub(super) user_info: LinkedMemberInfo,
}

/// A connected corporation's member; the other fields are ignored.
#[derive(Deserialize)]
pub struct LinkedMemberInfo {
    #[serde(default)]
    pub(super) name: String,
}

//! Corporations, applications, departments and members of the simulated platform.

use serde::{Deserialize, Serialize};

/// The simulated corporation.
pub const CORP_ID: &str = "wwdemo";

/// The connected corporation, which shares our application.
pub const PARTNER_CORP_ID: &str = "wwpartner";

/// The `agentid` of our application.
pub const AGENT_ID: &str = "1000002";

/// The secret of our application.
pub const SECRET: &str = "simulated-secret-of-the-help-desk";

/// An application of the corporation.
#[derive(Debug, PartialEq, Eq)]
pub struct Application {
    pub agent_id: &'static str,
    pub secret: &'static str,
    /// Its `agentid` at the connected corporation, if the two share it.
    pub partner_agent_id: Option<&'static str>,
}

/// Our application, and one whose codes and tokens ours must not accept.
pub static APPLICATIONS: [Application; 2] = [
    Application { agent_id: AGENT_ID, secret: SECRET, partner_agent_id: Some("1000042") },
    Application { agent_id: "1000003", secret: "simulated-secret-of-another-application", partner_agent_id: None },
];

impl Application {
    pub fn find(agent_id: &str) -> Option<&'static Application> {
        APPLICATIONS.iter().find(|application| application.agent_id == agent_id)
    }
}

/// A department, numbered within its corporation.
#[derive(Debug, PartialEq, Eq)]
pub struct CorpDepartment {
    pub corp_id: &'static str,
    pub id: i64,
    pub name: &'static str,
}

/// The number of the root department, which is the corporation itself.
pub const ROOT: i64 = 1;

/// All departments; each is the root or directly below it.
pub static DEPARTMENTS: [CorpDepartment; 7] = [
    CorpDepartment { corp_id: CORP_ID, id: ROOT, name: "Demo Corporation" },
    CorpDepartment { corp_id: CORP_ID, id: 2, name: "IT" },
    CorpDepartment { corp_id: CORP_ID, id: 3, name: "Sales" },
    CorpDepartment { corp_id: CORP_ID, id: 4, name: "Security" },
    CorpDepartment { corp_id: CORP_ID, id: 5, name: "财务部" },
    CorpDepartment { corp_id: PARTNER_CORP_ID, id: ROOT, name: "Partner Corporation" },
    CorpDepartment { corp_id: PARTNER_CORP_ID, id: 2, name: "Field Service" },
];

impl CorpDepartment {
    /// The parent's number; 0 for the root.
    pub fn parent(&self) -> i64 {
        if self.id == ROOT { 0 } else { ROOT }
    }
}

/// The relation of a person to the corporation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberKind {
    /// An active member.
    Active,
    /// A member whom the corporation has disabled.
    Disabled,
    /// A member who has never opened the client.
    NotActivated,
    /// A member who left, whose record is still there.
    Left,
    /// A member who was deleted: codes issued before still name them, the contacts do not know them.
    Deleted,
    /// A member of the connected corporation, identified as `corporation/userid`.
    Linked,
    /// Not a member of either corporation.
    Outsider,
    /// Not a member, but an external contact of the corporation.
    Customer,
}

/// A person in the simulator's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Identifier within the corporation.
    pub userid: &'static str,
    /// Display name.
    pub name: &'static str,
    /// Name of the department.
    pub department: &'static str,
    /// The kind while no switch overrides it.
    pub kind: MemberKind,
}

static MEMBERS: [Member; 8] = [
    member("u1001", "王小明", "Sales", MemberKind::Active),
    member("a2001", "Alice Chen", "IT", MemberKind::Active),
    member("s3001", "李静", "IT", MemberKind::Active),
    member("c4001", "Carlos Ortiz", "Security", MemberKind::Active),
    member("m5001", "周敏", "IT", MemberKind::Active),
    member("n6001", "Nora Lind", "财务部", MemberKind::Active),
    member("p7001", "Paula Novak", "Field Service", MemberKind::Linked),
    member("x8001", "徐文", "Sales", MemberKind::Disabled),
];

const fn member(userid: &'static str, name: &'static str, department: &'static str, kind: MemberKind) -> Member {
    Member { userid, name, department, kind }
}

/// Lists all people of the simulated platform.
pub fn members() -> &'static [Member] {
    &MEMBERS
}

/// A member with the kind that is in force, after the switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveMember {
    pub member: &'static Member,
    pub kind: MemberKind,
}

impl EffectiveMember {
    /// The corporation that lists this person, if one does.
    pub fn corp_id(&self) -> Option<&'static str> {
        match self.kind {
            MemberKind::Active | MemberKind::Disabled | MemberKind::NotActivated | MemberKind::Left => Some(CORP_ID),
            MemberKind::Linked => Some(PARTNER_CORP_ID),
            MemberKind::Deleted | MemberKind::Outsider | MemberKind::Customer => None,
        }
    }

    /// The identifier that an application of the main corporation receives.
    pub fn identifier(&self) -> String {
        match self.kind {
            MemberKind::Linked => format!("{PARTNER_CORP_ID}/{}", self.member.userid),
            MemberKind::Outsider | MemberKind::Customer => self.openid(),
            MemberKind::Active
            | MemberKind::Disabled
            | MemberKind::NotActivated
            | MemberKind::Left
            | MemberKind::Deleted => self.member.userid.to_owned(),
        }
    }

    /// The identifier of a person who is not a member.
    pub fn openid(&self) -> String {
        format!("oSimulated-{}", self.member.userid)
    }

    /// The identifier of an external contact.
    pub fn external_userid(&self) -> String {
        format!("wmSimulated-{}", self.member.userid)
    }

    /// The department's number; the root's if the corporation has no department of that name.
    pub fn department_id(&self) -> i64 {
        let is_own = |department: &&CorpDepartment| {
            Some(department.corp_id) == self.corp_id() && department.name == self.member.department
        };
        DEPARTMENTS.iter().find(is_own).map_or(ROOT, |department| department.id)
    }

    /// `status` of a profile.
    pub fn status(&self) -> i64 {
        match self.kind {
            MemberKind::Active
            | MemberKind::Linked
            | MemberKind::Deleted
            | MemberKind::Outsider
            | MemberKind::Customer => 1,
            MemberKind::Disabled => 2,
            MemberKind::NotActivated => 4,
            MemberKind::Left => 5,
        }
    }
}

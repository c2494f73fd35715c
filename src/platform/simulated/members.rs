//! Who is on the simulated platform: corporations, their applications, departments and people.

use super::switches::{Kind, Switches};

/// The simulated corporation.
pub const CORP_ID: &str = "wwdemo";

/// The corporation that is connected with it and uses our application too.
pub const PARTNER_CORP_ID: &str = "wwpartner";

/// The application's `agentid`.
pub const AGENT_ID: &str = "1000002";

/// The application's secret.
pub const SECRET: &str = "simulated-secret-of-the-help-desk";

/// An application of the corporation.
#[derive(Debug, PartialEq, Eq)]
pub struct App {
    /// Its `agentid`.
    pub agent_id: &'static str,
    /// Its secret.
    pub secret: &'static str,
    /// Its `agentid` at the connected corporation, if it is shared with it.
    pub partner_agent_id: Option<&'static str>,
}

/// The corporation's applications: ours, and one whose codes and tokens are not ours.
pub static APPS: [App; 2] = [
    App { agent_id: AGENT_ID, secret: SECRET, partner_agent_id: Some("1000042") },
    App { agent_id: "1000003", secret: "simulated-secret-of-another-application", partner_agent_id: None },
];

impl App {
    /// The one with this `agentid`.
    pub fn find(agent_id: &str) -> Option<&'static App> {
        APPS.iter().find(|app| app.agent_id == agent_id)
    }
}

/// A department of a corporation.
#[derive(Debug, PartialEq, Eq)]
pub struct Department {
    /// Whose.
    pub corp_id: &'static str,
    /// Its number there.
    pub id: i64,
    /// Its name.
    pub name: &'static str,
}

/// The number of the department that is the corporation itself.
pub const ROOT: i64 = 1;

/// All departments; those below the corporation itself have no further ones below them.
pub static DEPARTMENTS: [Department; 7] = [
    Department { corp_id: CORP_ID, id: ROOT, name: "Demo Corporation" },
    Department { corp_id: CORP_ID, id: 2, name: "IT" },
    Department { corp_id: CORP_ID, id: 3, name: "Sales" },
    Department { corp_id: CORP_ID, id: 4, name: "Security" },
    Department { corp_id: CORP_ID, id: 5, name: "财务部" },
    Department { corp_id: PARTNER_CORP_ID, id: ROOT, name: "Partner Corporation" },
    Department { corp_id: PARTNER_CORP_ID, id: 2, name: "Field Service" },
];

impl Department {
    /// What is above it; nothing above the corporation itself.
    pub fn parent(&self) -> i64 {
        if self.id == ROOT { 0 } else { ROOT }
    }
}

/// Why somebody is there, unless a switch says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// A member who may work.
    Active,
    /// A member whom the corporation has disabled.
    Disabled,
    /// A member of a connected corporation, whom the platform names `corporation/userid`.
    Linked {
        /// Their corporation.
        corp_id: &'static str,
    },
}

/// One person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Their identifier within their corporation.
    pub userid: &'static str,
    /// Display name.
    pub name: &'static str,
    /// Name of their department.
    pub department: &'static str,
    /// Why they are there.
    pub kind: MemberKind,
}

static MEMBERS: [Member; 8] = [
    member("u1001", "王小明", "Sales", MemberKind::Active),
    member("a2001", "Alice Chen", "IT", MemberKind::Active),
    member("s3001", "李静", "IT", MemberKind::Active),
    member("c4001", "Carlos Ortiz", "Security", MemberKind::Active),
    member("m5001", "周敏", "IT", MemberKind::Active),
    member("n6001", "Nora Lind", "财务部", MemberKind::Active),
    member("p7001", "Paula Novak", "Field Service", MemberKind::Linked { corp_id: PARTNER_CORP_ID }),
    member("x8001", "徐文", "Sales", MemberKind::Disabled),
];

const fn member(userid: &'static str, name: &'static str, department: &'static str, kind: MemberKind) -> Member {
    Member { userid, name, department, kind }
}

/// Everybody.
pub fn members() -> &'static [Member] {
    &MEMBERS
}

impl Member {
    /// As the platform names them to an application, unless a switch makes them somebody else.
    pub fn identifier(&self) -> String {
        match self.kind {
            MemberKind::Linked { corp_id } => format!("{corp_id}/{}", self.userid),
            MemberKind::Active | MemberKind::Disabled => self.userid.to_owned(),
        }
    }
}

/// A member as the switches make them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Person {
    /// Who.
    pub member: &'static Member,
    /// What they are now.
    pub kind: Kind,
}

impl Person {
    /// A member, as the switches say.
    pub fn new(member: &'static Member, switches: &Switches) -> Self {
        let own = match member.kind {
            MemberKind::Active => Kind::Active,
            MemberKind::Disabled => Kind::Disabled,
            MemberKind::Linked { .. } => Kind::Linked,
        };
        Self { member, kind: switches.members.get(member.userid).copied().unwrap_or(own) }
    }

    /// Everybody.
    pub fn all(switches: &Switches) -> impl Iterator<Item = Person> {
        MEMBERS.iter().map(move |member| Person::new(member, switches))
    }

    /// Who is meant: the identifier as the platform names it, or the bare userid. The platform's
    /// userids are the same in any case.
    pub fn find(text: &str, switches: &Switches) -> Option<Person> {
        Person::all(switches).find(|person| {
            person.member.userid.eq_ignore_ascii_case(text) || person.identifier().eq_ignore_ascii_case(text)
        })
    }

    /// Their corporation, if they are a member of one.
    pub fn corp_id(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Active | Kind::Disabled | Kind::NotActivated => Some(CORP_ID),
            Kind::Linked => Some(PARTNER_CORP_ID),
            Kind::Outsider | Kind::Customer => None,
        }
    }

    /// As the platform names them to an application of the main corporation.
    pub fn identifier(&self) -> String {
        match self.kind {
            Kind::Linked => format!("{PARTNER_CORP_ID}/{}", self.member.userid),
            Kind::Outsider | Kind::Customer => self.openid(),
            Kind::Active | Kind::Disabled | Kind::NotActivated => self.member.userid.to_owned(),
        }
    }

    /// As the platform names somebody who is no member.
    pub fn openid(&self) -> String {
        format!("oSimulated-{}", self.member.userid)
    }

    /// As the platform names a customer.
    pub fn external_userid(&self) -> String {
        format!("wmSimulated-{}", self.member.userid)
    }

    /// The number of their department; whoever has none belongs to the corporation itself.
    pub fn department_id(&self) -> i64 {
        let own = |department: &&Department| {
            Some(department.corp_id) == self.corp_id() && department.name == self.member.department
        };
        DEPARTMENTS.iter().find(own).map_or(ROOT, |department| department.id)
    }

    /// Whether they can show an application what members must agree to: members of the main corporation
    /// whom it sees can. The platform does not offer it for connected corporations.
    pub fn shows_private_info(&self, app: &App, switches: &Switches) -> bool {
        self.corp_id() == Some(CORP_ID) && switches.sees(app, self)
    }

    /// `status` of a profile.
    pub fn status(&self) -> i64 {
        match self.kind {
            Kind::Active | Kind::Linked | Kind::Outsider | Kind::Customer => 1,
            Kind::Disabled => 2,
            Kind::NotActivated => 4,
        }
    }
}

//! Who is on the simulated platform.

/// The simulated corporation.
pub const CORP_ID: &str = "wwdemo";

/// Why somebody is there.
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

const MEMBERS: [Member; 8] = [
    member("u1001", "王小明", "Sales", MemberKind::Active),
    member("a2001", "Alice Chen", "IT", MemberKind::Active),
    member("s3001", "李静", "IT", MemberKind::Active),
    member("c4001", "Carlos Ortiz", "Security", MemberKind::Active),
    member("m5001", "周敏", "IT", MemberKind::Active),
    member("n6001", "Nora Lind", "财务部", MemberKind::Active),
    member("p7001", "Paula Novak", "Field Service", MemberKind::Linked { corp_id: "wwpartner" }),
    member("x8001", "徐文", "Sales", MemberKind::Disabled),
];

/// Departments of the corporation; their numbers start at 2, below the corporation itself.
pub(super) const DEPARTMENTS: [(i64, &str); 4] = [(2, "IT"), (3, "Sales"), (4, "Security"), (5, "财务部")];

const fn member(userid: &'static str, name: &'static str, department: &'static str, kind: MemberKind) -> Member {
    Member { userid, name, department, kind }
}

/// Everybody.
pub fn members() -> &'static [Member] {
    &MEMBERS
}

impl Member {
    /// As the platform names them to an application.
    pub fn identifier(&self) -> String {
        match self.kind {
            MemberKind::Linked { corp_id } => format!("{corp_id}/{}", self.userid),
            MemberKind::Active | MemberKind::Disabled => self.userid.to_owned(),
        }
    }

    /// The number of their department; a connected corporation's are its own affair.
    pub(super) fn department_id(&self) -> Option<i64> {
        DEPARTMENTS.iter().find(|(_, name)| *name == self.department).map(|(id, _)| *id)
    }
}

/// Who is meant: the identifier as the platform names it, or the bare userid. The platform's
/// userids are the same in any case.
pub(super) fn find(text: &str) -> Option<&'static Member> {
    MEMBERS
        .iter()
        .find(|member| member.userid.eq_ignore_ascii_case(text) || member.identifier().eq_ignore_ascii_case(text))
}

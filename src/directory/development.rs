//! The employees of development mode, as the contract names them. Names and departments equal the simulated platform's,
//! so that a sign-in through it changes nothing.

/// The development corporation.
pub(super) const CORP: &str = "wwdemo";

/// A development employee.
pub(super) struct DevelopmentEmployee {
    pub(super) employee_id: &'static str,
    pub(super) name: &'static str,
    pub(super) department: &'static str,
    pub(super) roles: &'static [&'static str],
    /// The role of the agent record, if there is one.
    pub(super) agent: Option<&'static str>,
}

/// All development employees.
pub(super) const EMPLOYEES: &[DevelopmentEmployee] = &[
    DevelopmentEmployee { employee_id: "u1001", name: "王小明", department: "Sales", roles: &["user"], agent: None },
    DevelopmentEmployee {
        employee_id: "a2001",
        name: "Alice Chen",
        department: "IT",
        roles: &["agent", "user"],
        agent: Some("agent"),
    },
    DevelopmentEmployee {
        employee_id: "s3001",
        name: "李静",
        department: "IT",
        roles: &["supervisor"],
        agent: Some("supervisor"),
    },
    DevelopmentEmployee {
        employee_id: "c4001",
        name: "Carlos Ortiz",
        department: "Security",
        roles: &["security"],
        agent: None,
    },
    DevelopmentEmployee {
        employee_id: "m5001",
        name: "周敏",
        department: "IT",
        roles: &["admin", "agent", "user"],
        agent: Some("admin"),
    },
    DevelopmentEmployee { employee_id: "n6001", name: "Nora Lind", department: "财务部", roles: &[], agent: None },
];

#[cfg(test)]
#[cfg(feature = "demo")]
mod tests;

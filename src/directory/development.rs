//! The people of development mode, as the contract names them.

/// Their corporation.
pub(super) const CORP: &str = "wwdemo";

/// One of them.
pub(super) struct Person {
    pub(super) employee_id: &'static str,
    pub(super) name: &'static str,
    pub(super) department: &'static str,
    pub(super) roles: &'static [&'static str],
    /// The role of their agent record, if they have one.
    pub(super) agent: Option<&'static str>,
}

/// All of them.
pub(super) const PEOPLE: &[Person] = &[
    Person { employee_id: "u1001", name: "林小雨", department: "财务部", roles: &["user"], agent: None },
    Person {
        employee_id: "a2001",
        name: "Alex Chen",
        department: "IT",
        roles: &["agent", "user"],
        agent: Some("agent"),
    },
    Person {
        employee_id: "s3001",
        name: "孙志远",
        department: "IT",
        roles: &["supervisor"],
        agent: Some("supervisor"),
    },
    Person { employee_id: "c4001", name: "Clara Wu", department: "Security", roles: &["security"], agent: None },
    Person {
        employee_id: "m5001",
        name: "马明",
        department: "IT",
        roles: &["admin", "agent", "user"],
        agent: Some("admin"),
    },
    Person { employee_id: "n6001", name: "Noah Li", department: "HR", roles: &[], agent: None },
];

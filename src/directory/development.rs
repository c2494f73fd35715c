//! The people of development mode, as the contract names them. Their names and departments are the
//! simulated platform's, so that a sign-in through it changes nothing.

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
    Person { employee_id: "u1001", name: "王小明", department: "Sales", roles: &["user"], agent: None },
    Person {
        employee_id: "a2001",
        name: "Alice Chen",
        department: "IT",
        roles: &["agent", "user"],
        agent: Some("agent"),
    },
    Person {
        employee_id: "s3001", name: "李静", department: "IT", roles: &["supervisor"], agent: Some("supervisor")
    },
    Person { employee_id: "c4001", name: "Carlos Ortiz", department: "Security", roles: &["security"], agent: None },
    Person {
        employee_id: "m5001",
        name: "周敏",
        department: "IT",
        roles: &["admin", "agent", "user"],
        agent: Some("admin"),
    },
    Person { employee_id: "n6001", name: "Nora Lind", department: "财务部", roles: &[], agent: None },
];

#[cfg(test)]
#[cfg(feature = "demo")]
mod tests {
    use super::PEOPLE;
    use crate::demo::members;

    #[test]
    fn the_directory_and_the_simulated_platform_know_the_same_people() {
        for person in PEOPLE {
            let member = members().iter().find(|member| member.userid == person.employee_id).expect("a member");
            assert_eq!((person.name, person.department), (member.name, member.department));
        }
    }
}

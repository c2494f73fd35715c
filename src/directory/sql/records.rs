//! Rows as records of the directory.

use super::row::SqlRow;
use crate::directory::Assignment;
use crate::domain::employee::{CorpId, Employee, EmployeeId, InactiveReason, Standing};
use crate::domain::role::RoleName;

pub(super) fn by_priority(mut roles: Vec<RoleName>) -> Vec<RoleName> {
    roles.sort_by(|a, b| b.priority().cmp(&a.priority()).then_with(|| a.cmp(b)));
    roles
}

pub(super) fn assignment_of(row: &SqlRow) -> Assignment {
    Assignment {
        corp_id: CorpId::new(row.get::<String>(0)),
        employee_id: EmployeeId::new(row.get::<String>(1)),
        name: row.get(2),
        role: RoleName::new(row.get::<String>(3)),
    }
}

pub(super) fn employee_of(row: &SqlRow) -> Employee {
    Employee {
        corp_id: CorpId::new(row.get::<String>(0)),
        employee_id: EmployeeId::new(row.get::<String>(1)),
        name: row.get(2),
        department: row.get(3),
        avatar: row.get(4),
        standing: standing_of(row.get(5)),
        last_login_ip: row.get(6),
        inactive: row.get::<Option<&str>>(7).and_then(InactiveReason::parse),
    }
}

pub(super) fn standing_of(disabled: i64) -> Standing {
    if disabled == 0 { Standing::Active } else { Standing::Disabled }
}

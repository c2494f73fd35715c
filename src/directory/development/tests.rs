use super::EMPLOYEES;
use crate::demo::members;

#[test]
fn the_directory_and_the_simulated_platform_have_the_same_employees() {
    for employee in EMPLOYEES {
        let member = members().iter().find(|member| member.userid == employee.employee_id).expect("a member");
        assert_eq!((employee.name, employee.department), (member.name, member.department));
    }
}

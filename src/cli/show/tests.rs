use super::lines;

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

#[test]
fn columns_stand_below_each_other_also_with_wide_letters() {
    let rows = [row(&["u1001", "林小雨", "user"]), row(&["a2001", "Anton", "agent"])];
    assert_eq!(
        lines(&["EMPLOYEE", "NAME", "ROLE"], &rows),
        ["EMPLOYEE  NAME    ROLE", "u1001     林小雨  user", "a2001     Anton   agent"]
    );
}

#[test]
fn what_a_terminal_would_obey_does_not_reach_it() {
    let rows = [row(&["u1", "\u{1b}[31mred\u{7}", "user"])];
    let shown = lines(&["EMPLOYEE", "NAME", "ROLE"], &rows).join("\n");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown}");
}

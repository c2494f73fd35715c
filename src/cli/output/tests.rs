use super::{count_sessions, table_lines};

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

#[test]
fn columns_are_aligned_by_display_width() {
    let rows = [row(&["u1001", "王小明", "user"]), row(&["a2001", "Alice Chen", "agent"])];
    assert_eq!(
        table_lines(&["EMPLOYEE", "NAME", "ROLE"], &rows),
        ["EMPLOYEE  NAME        ROLE", "u1001     王小明      user", "a2001     Alice Chen  agent"]
    );
}

#[test]
fn control_characters_are_not_printed() {
    let rows = [row(&["u1", "\u{1b}[31mred\u{7}", "user"])];
    let shown = table_lines(&["EMPLOYEE", "NAME", "ROLE"], &rows).join("\n");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown}");
}

#[test]
fn session_counts_have_the_right_plural() {
    assert_eq!([0, 1, 2].map(count_sessions), ["0 sessions", "1 session", "2 sessions"]);
}

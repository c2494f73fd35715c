use super::*;

fn line<'a>(corp_id: &'a str, platform_user: &'a str, employee_id: &'a str) -> CsvLine<'a> {
    CsvLine { corp_id, platform_user, employee_id }
}

#[test]
fn link_file_is_read_as_spreadsheets_write_it() {
    let text = "\u{feff}corp_id,platform_user,employee_id\r\nwwp,p1,u1\r\n\r\n\"wwp\", \"p2\" ,u2\r\n";
    let lines = read(text).expect("a valid file");
    assert_eq!(lines, [(2, Ok(line("wwp", "p1", "u1"))), (4, Ok(line("wwp", "p2", "u2")))]);
}

#[test]
fn link_file_faults_have_their_line_number() {
    for (case, text, expected) in [
        ("empty", "", "line 1: the first line must be"),
        ("no header", "wwp,p1,u1\n", "line 1: the first line must be"),
        ("another order", "employee_id,corp_id,platform_user\nu1,wwp,p1\n", "line 1: the first line must be"),
        ("nothing but a header", "corp_id,platform_user,employee_id\n", "the file has no links"),
    ] {
        let fault = read(text).expect_err(case);
        assert!(fault.starts_with(expected), "{case}: {fault}");
    }
    let lines = read("corp_id,platform_user,employee_id\nwwp,p1\nwwp,p1,u1,x\n").expect("a header");
    for (number, fault) in lines {
        assert!(fault.is_err_and(|fault| fault.contains("expected 3 values")), "line {number}");
    }
}

#[test]
fn link_file_size_is_limited() {
    let text = format!("{HEADER}\n{}", "wwp,p1,u1\n".repeat(MAX_LINKS + 1));
    assert!(read(&text).expect_err("too many").contains("split it"));
}

#[test]
fn long_fault_lists_are_cut() {
    let faults: Vec<String> = (0..25).map(|number| format!("line {number}: x")).collect();
    let text = summary(&faults);
    assert!(text.contains("line 19: x") && !text.contains("line 20: x") && text.contains("and 5 more"), "{text}");
    assert!(text.ends_with("no link was added"), "{text}");
}

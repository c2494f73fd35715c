//! Members and departments.

use super::*;

fn numbers(departments: &Value) -> Vec<i64> {
    departments.as_array().unwrap().iter().map(|department| department["id"].as_i64().unwrap()).collect()
}

fn names(people: &Value) -> Vec<&str> {
    people.as_array().unwrap().iter().map(|person| person["userid"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_profile_has_the_status_of_the_members_kind() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let table = [
        (MemberKind::Active, Ok(1)),
        (MemberKind::Disabled, Ok(2)),
        (MemberKind::NotActivated, Ok(4)),
        (MemberKind::Left, Ok(5)),
        (MemberKind::Deleted, Err(60111)),
        (MemberKind::Linked, Err(60111)),
        (MemberKind::Outsider, Err(60111)),
        (MemberKind::Customer, Err(60111)),
    ];
    for (kind, expected) in table {
        simulator.switches(|switches| switches.members = [("a2001".to_owned(), kind)].into());
        let answer = call(&simulator, path::USER, &[("access_token", &token), ("userid", "A2001")]).await;
        let found = answer["status"].as_i64().ok_or(answer["errcode"].as_i64().unwrap());
        assert_eq!(found, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn only_an_old_application_gets_avatar_mobile_and_email() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    for old in [false, true] {
        simulator.switches(|switches| switches.old_application = old);
        let answer = call(&simulator, path::USER, &[("access_token", &token), ("userid", "u1001")]).await;
        assert_eq!(answer["name"], "王小明");
        for key in ["avatar", "gender", "mobile", "email", "biz_mail", "qr_code", "address"] {
            assert_eq!(answer.get(key).is_some(), old, "{key}");
        }
        if old {
            let picture = open(Url::parse(answer["avatar"].as_str().unwrap()).unwrap()).await;
            assert_eq!(picture.headers[header::CONTENT_TYPE], "image/svg+xml");
        }
    }
    let unknown = simulator.api_url().join("/simulator/avatars/z9999").unwrap();
    assert_eq!(open(unknown).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn departments_come_as_an_object_a_list_or_numbers() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let token = ("access_token", token.as_str());
    let answer = call(&simulator, path::DEPARTMENT, &[token, ("id", "1")]).await;
    assert_eq!((&answer["department"]["parentid"], &answer["department"]["id"]), (&json!(0), &json!(1)));
    let table: &[(&str, Pairs<'_>, &[i64])] = &[
        ("all", &[token], &[1, 2, 3, 4, 5]),
        ("all, by an empty number", &[token, ("id", "")], &[1, 2, 3, 4, 5]),
        ("the corporation itself", &[token, ("id", "1")], &[1, 2, 3, 4, 5]),
        ("one", &[token, ("id", "5")], &[5]),
    ];
    for (case, query, expected) in table {
        let answer = call(&simulator, path::DEPARTMENT_LIST, query).await;
        assert_eq!(numbers(&answer["department"]), *expected, "{case}");
        let answer = call(&simulator, path::DEPARTMENT_SIMPLE_LIST, query).await;
        assert_eq!(numbers(&answer["department_id"]), *expected, "{case}");
    }
    assert_eq!(errcode(&simulator, path::DEPARTMENT_LIST, &[token, ("id", "99")]).await, 60003);
}

#[tokio::test]
async fn a_departments_members_are_listed_by_name_or_with_profiles() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let token = ("access_token", token.as_str());
    let all: &[&str] = &["u1001", "a2001", "s3001", "c4001", "m5001", "n6001", "x8001"];
    let table: &[(&str, Pairs<'_>, &[&str])] = &[
        ("one", &[token, ("department_id", "2")], &["a2001", "s3001", "m5001"]),
        ("the corporation itself", &[token, ("department_id", "1")], &[]),
        ("with those below", &[token, ("department_id", "1"), ("fetch_child", "1")], all),
    ];
    for (case, query, expected) in table {
        for path in [path::USER_SIMPLE_LIST, path::USER_LIST] {
            let answer = call(&simulator, path, query).await;
            assert_eq!(names(&answer["userlist"]), *expected, "{case}");
        }
    }
    let answer = call(&simulator, path::USER_LIST, &[token, ("department_id", "2")]).await;
    assert_eq!((&answer["userlist"][0]["status"], &answer["userlist"][0]["main_department"]), (&json!(1), &json!(2)));
    assert_eq!(errcode(&simulator, path::USER_LIST, &[token, ("department_id", "99")]).await, 60003);
}

#[tokio::test]
async fn members_outside_the_visible_range_are_rejected() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.visible_range = [(AGENT_ID.to_owned(), vec!["A2001".to_owned()])].into());
    let (ours, others) = (token_of(&simulator, SECRET).await, token_of(&simulator, APPLICATIONS[1].secret).await);
    let (ours, others) = (("access_token", ours.as_str()), ("access_token", others.as_str()));
    let table: &[(&str, &str, Pairs<'_>, i64)] = &[
        ("a member inside", path::USER, &[ours, ("userid", "a2001")], 0),
        ("a member outside", path::USER, &[ours, ("userid", "s3001")], 60011),
        ("an application that is not named", path::USER, &[others, ("userid", "a2001")], 60011),
        ("their department", path::DEPARTMENT, &[ours, ("id", "2")], 0),
        ("another department", path::DEPARTMENT, &[ours, ("id", "3")], 60011),
        ("members of another department", path::USER_LIST, &[ours, ("department_id", "3")], 60011),
        ("an unknown member", path::USER, &[ours, ("userid", "z9999")], 60111),
    ];
    for (case, path, query, expected) in table {
        assert_eq!(errcode(&simulator, path, query).await, *expected, "{case}");
    }
    let answer = call(&simulator, path::DEPARTMENT_LIST, &[ours]).await;
    assert_eq!(numbers(&answer["department"]), [2]);
    let answer = call(&simulator, path::USER_SIMPLE_LIST, &[ours, ("department_id", "2")]).await;
    assert_eq!(names(&answer["userlist"]), ["a2001"]);
}

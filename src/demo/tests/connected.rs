//! Connected corporations.

use super::*;

#[tokio::test]
async fn a_connected_member_has_a_linked_profile() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let answer = post(&simulator, path::LINKED_USER, &token, &json!({ "userid": "wwpartner/p7001" })).await;
    let person = &answer["user_info"];
    assert_eq!((&person["userid"], &person["corpid"]), (&json!("p7001"), &json!("wwpartner")));
    assert_eq!((&person["name"], &person["department"]), (&json!("Paula Novak"), &json!(["LINKEDID/2"])));

    let table = [
        ("none named", json!({}), 41009),
        ("no object", json!("x"), 47001),
        ("without their corporation", json!({ "userid": "p7001" }), 40003),
        ("of another corporation", json!({ "userid": "wwother/p7001" }), 60111),
        ("a member of ours", json!({ "userid": "wwdemo/u1001" }), 60111),
    ];
    for (case, body, errcode) in table {
        assert_eq!(post(&simulator, path::LINKED_USER, &token, &body).await["errcode"], errcode, "{case}");
    }
    simulator.switches(|switches| switches.visible_range = [(AGENT_ID.to_owned(), vec![])].into());
    let answer = post(&simulator, path::LINKED_USER, &token, &json!({ "userid": "wwpartner/p7001" })).await;
    assert_eq!(answer["errcode"], 60021, "not visible");
}

#[tokio::test]
async fn a_downstream_token_reads_the_partners_contacts_only() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let answer = post(&simulator, path::SHARED_WITH, &token, &json!({ "agentid": 1000002, "business_type": 1 })).await;
    let partner = json!({ "corpid": "wwpartner", "corp_name": "Partner Corporation", "agentid": 1000042 });
    assert_eq!((&answer["ending"], &answer["corp_list"]), (&json!(1), &json!([partner])));

    let body = json!({ "corpid": "wwpartner", "agentid": 1000042, "business_type": 1 });
    let answer = post(&simulator, path::DOWNSTREAM_TOKEN, &token, &body).await;
    assert_eq!(answer["expires_in"], 7200);
    let downstream = answer["access_token"].as_str().unwrap();
    assert_ne!(downstream, token);
    let downstream = ("access_token", downstream);
    let answer = call(&simulator, path::USER, &[downstream, ("userid", "P7001")]).await;
    assert_eq!((&answer["name"], &answer["main_department"]), (&json!("Paula Novak"), &json!(2)));
    let answer = call(&simulator, path::DEPARTMENT, &[downstream, ("id", "2")]).await;
    assert_eq!(answer["department"]["name"], "Field Service");

    let code = code_of(&simulator, "p7001").await;
    let table: &[(&str, &str, Pairs<'_>, i64)] = &[
        ("our members", path::USER, &[downstream, ("userid", "u1001")], 60111),
        ("our departments", path::DEPARTMENT, &[downstream, ("id", "5")], 60003),
        ("codes", path::USER_INFO, &[downstream, ("code", &code)], 48002),
    ];
    for (case, path, query, expected) in table {
        assert_eq!(errcode(&simulator, path, query).await, *expected, "{case}");
    }
}

#[tokio::test]
async fn an_application_that_is_not_shared_gets_no_downstream_token() {
    let (simulator, _) = simulator().await;
    let (ours, others) = (token_of(&simulator, SECRET).await, token_of(&simulator, APPLICATIONS[1].secret).await);
    let (give, list) = (path::DOWNSTREAM_TOKEN, path::SHARED_WITH);
    let table = [
        ("no corporation", give, &ours, json!({ "agentid": 1000042 }), 41002),
        ("another corporation", give, &ours, json!({ "corpid": "wwother", "agentid": 1000042 }), 40013),
        ("no application", give, &ours, json!({ "corpid": "wwpartner" }), 41011),
        ("our own number for it", give, &ours, json!({ "corpid": "wwpartner", "agentid": AGENT_ID }), 40056),
        ("as text", give, &ours, json!({ "corpid": "wwpartner", "agentid": "1000042" }), 0),
        (
            "unknown business",
            give,
            &ours,
            json!({ "corpid": "wwpartner", "agentid": 1000042, "business_type": 7 }),
            40058,
        ),
        ("another application", give, &others, json!({ "corpid": "wwpartner", "agentid": 1000042 }), 40056),
        ("list: another application's", list, &others, json!({ "agentid": 1000002 }), 40056),
        ("list: no application", list, &ours, json!({}), 41011),
        ("no token", give, &"x".to_owned(), json!({}), 40014),
    ];
    for (case, path, token, body, errcode) in table {
        assert_eq!(post(&simulator, path, token, &body).await["errcode"], errcode, "{case}");
    }
    for (case, token, body) in [
        ("not shared", &others, json!({ "agentid": 1000003 })),
        ("not with that one", &ours, json!({ "agentid": 1000002, "corpid": "wwother" })),
    ] {
        assert_eq!(post(&simulator, list, token, &body).await["corp_list"], json!([]), "{case}");
    }
}

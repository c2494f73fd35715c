//! The exchange of a code, and user tickets.

use super::*;

const PRIVATE: Pairs<'_> = &[("scope", "snsapi_privateinfo"), ("agentid", AGENT_ID)];

async fn private_code(simulator: &SimulatedPlatform, who: &str) -> String {
    code_with(simulator, &[PRIVATE, &[("as", who)]].concat()).await
}

#[tokio::test]
async fn each_kind_of_person_has_the_identifiers_of_the_path() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let table = [
        (MemberKind::Active, json!({ "userid": "u1001" }), json!({ "UserId": "u1001", "DeviceId": "" })),
        (MemberKind::Disabled, json!({ "userid": "u1001" }), json!({ "UserId": "u1001", "DeviceId": "" })),
        (MemberKind::NotActivated, json!({ "userid": "u1001" }), json!({ "UserId": "u1001", "DeviceId": "" })),
        (
            MemberKind::Linked,
            json!({ "userid": "wwpartner/u1001" }),
            json!({ "UserId": "wwpartner/u1001", "DeviceId": "" }),
        ),
        (
            MemberKind::Outsider,
            json!({ "openid": "oSimulated-u1001" }),
            json!({ "OpenId": "oSimulated-u1001", "DeviceId": "" }),
        ),
        (
            MemberKind::Customer,
            json!({ "openid": "oSimulated-u1001", "external_userid": "wmSimulated-u1001" }),
            json!({ "OpenId": "oSimulated-u1001", "external_userid": "wmSimulated-u1001", "DeviceId": "" }),
        ),
    ];
    for (kind, current, legacy) in table {
        simulator.switches(|switches| switches.members = [("u1001".to_owned(), kind)].into());
        for (path, mut expected) in [(path::USER_INFO, current), (path::LEGACY_USER_INFO, legacy)] {
            expected["errcode"] = json!(0);
            expected["errmsg"] = json!("ok");
            let code = code_of(&simulator, "u1001").await;
            let answer = call(&simulator, path, &[("access_token", &token), ("code", &code)]).await;
            assert_eq!(answer, expected, "{kind:?} {path}");
        }
    }
}

#[tokio::test]
async fn a_user_ticket_needs_consent_and_visibility() {
    let (simulator, _) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let seen = |ids: &[&str]| [(AGENT_ID.to_owned(), ids.iter().map(|&id| id.to_owned()).collect())].into();
    let table: &[(&str, Pairs<'_>, MemberKind, &[&str], bool)] = &[
        ("asked and visible", PRIVATE, MemberKind::Active, &["u1001"], true),
        ("not asked", &[("agentid", AGENT_ID)], MemberKind::Active, &["u1001"], false),
        ("not visible", PRIVATE, MemberKind::Active, &["a2001"], false),
        ("of a connected corporation", PRIVATE, MemberKind::Linked, &["u1001"], false),
        ("not a member", PRIVATE, MemberKind::Outsider, &["u1001"], false),
    ];
    for (case, changes, kind, visible, expected) in table {
        simulator.switches(|switches| {
            switches.members = [("u1001".to_owned(), *kind)].into();
            switches.visible_range = seen(visible);
        });
        for path in [path::USER_INFO, path::LEGACY_USER_INFO] {
            let code = code_with(&simulator, &[changes, &[("as", "u1001")][..]].concat()).await;
            let answer = call(&simulator, path, &[("access_token", &token), ("code", &code)]).await;
            assert_eq!(answer["errcode"], 0, "{case}");
            assert_eq!(answer.get("user_ticket").is_some(), *expected, "{case} {path}");
            let lifetime = (*expected && path == path::LEGACY_USER_INFO).then(|| json!(1800));
            assert_eq!(answer.get("expires_in"), lifetime.as_ref(), "{case} {path}");
        }
    }
}

#[tokio::test]
async fn a_user_ticket_returns_private_fields_for_half_an_hour() {
    let (simulator, clock) = simulator().await;
    let token = token_of(&simulator, SECRET).await;
    let code = private_code(&simulator, "u1001").await;
    let answer = call(&simulator, path::USER_INFO, &[("access_token", &token), ("code", &code)]).await;
    let ticket = json!({ "user_ticket": answer["user_ticket"] });
    assert!(answer["user_ticket"].as_str().unwrap().len() <= 512);

    for _ in 0..2 {
        let detail = post(&simulator, path::USER_DETAIL, &token, &ticket).await;
        assert_eq!((&detail["errcode"], &detail["userid"]), (&json!(0), &json!("u1001")));
        for key in ["gender", "avatar", "qr_code", "mobile", "email", "biz_mail", "address"] {
            assert!(detail[key].is_string(), "{key}");
        }
        assert!(detail.get("name").is_none());
    }
    let others = token_of(&simulator, APPLICATIONS[1].secret).await;
    simulator.switches(|switches| switches.visible_range = [(AGENT_ID.to_owned(), vec!["a2001".to_owned()])].into());
    let table = [
        ("another application's", &others, ticket.clone(), 84015),
        ("no longer visible", &token, ticket.clone(), 50002),
        ("unknown", &token, json!({ "user_ticket": "x" }), 84015),
        ("none", &token, json!({}), 84015),
        ("no object", &token, json!([]), 47001),
    ];
    for (case, token, body, errcode) in table {
        assert_eq!(post(&simulator, path::USER_DETAIL, token, &body).await["errcode"], errcode, "{case}");
    }
    clock.advance(Duration::from_secs(1800));
    assert_eq!(post(&simulator, path::USER_DETAIL, &token, &ticket).await["errcode"], 84014, "expired");
}

#[tokio::test]
async fn the_identifier_needs_no_visibility() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.visible_range = [(AGENT_ID.to_owned(), vec![])].into());
    let token = token_of(&simulator, SECRET).await;
    let code = code_of(&simulator, "u1001").await;
    let answer = call(&simulator, path::USER_INFO, &[("access_token", &token), ("code", &code)]).await;
    assert_eq!(answer["userid"], "u1001");
}

#[tokio::test]
async fn a_code_lifetime_of_zero_issues_expired_codes() {
    let (simulator, _) = simulator().await;
    simulator.switches(|switches| switches.code_lifetime = Duration::ZERO);
    let token = token_of(&simulator, SECRET).await;
    let code = code_of(&simulator, "u1001").await;
    assert_eq!(errcode(&simulator, path::USER_INFO, &[("access_token", &token), ("code", &code)]).await, 40029);
}

use super::*;
use crate::signin::oauth2::Return;

#[test]
fn a_token_is_handed_out_and_does_not_print() {
    let token = "header.claims.signature";
    let logged_in = LoggedIn {
        session_id: SessionId::new("s"),
        token: Secret::new(token.to_owned()),
        token_type: "Bearer",
        expires_in: 1,
        expires_at: String::new(),
        employee_id: "u1001".to_owned(),
        name: String::new(),
        roles: Vec::new(),
        current_role: RoleName::new("user"),
        corp_id: String::new(),
        login_method: LoginMethod::Dev,
        login_source: LoginSource::Dev,
        department: String::new(),
        avatar: String::new(),
        stage: None,
        failed_tries: None,
    };
    let answer = serde_json::to_value(&logged_in).expect("JSON");
    assert_eq!(answer["token"], token);
    let returned = Return::SignedIn { to: String::new(), token: logged_in.token.clone(), expires_in: 1, flow: None };
    for printed in [format!("{logged_in:?}"), format!("{returned:?}")] {
        assert!(!printed.contains("signature"), "{printed}");
    }
}

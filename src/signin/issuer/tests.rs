use super::*;
use crate::signin::oauth2::callback::CallbackResult;

#[test]
fn an_issued_token_is_serialized_but_never_in_debug_output() {
    let token = "header.claims.signature";
    let issued = SignInGrant {
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
    let json = serde_json::to_value(&issued).expect("JSON");
    assert_eq!(json["token"], token);
    let (session, token) = (SessionId::new("s"), issued.token.clone());
    let result = CallbackResult::SignedIn { to: String::new(), session, token, expires_in: 1, flow: None };
    for printed in [format!("{issued:?}"), format!("{result:?}")] {
        assert!(!printed.contains("signature"), "{printed}");
    }
}

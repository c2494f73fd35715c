//! Requirements on every page.

use super::*;
use crate::demo::switch_patch::SWITCHES;

#[tokio::test]
async fn every_page_has_no_script_fits_a_phone_and_escapes_its_values() {
    let (simulator, _) = simulator().await;
    let page = |path: &str| simulator.api_url().join(path).unwrap();
    let odd = "\"><script>{{style}}";
    let mut domain = page(path::URI_CONFIRM);
    domain.query_pairs_mut().append_pair("uri", odd);
    let private = [("scope", "snsapi_privateinfo"), ("agentid", AGENT_ID), ("pick", "u1001"), ("state", odd)];
    let pages = [
        authorize_url(&simulator, &[("state", odd)]),
        authorize_url(&simulator, &private),
        authorize_url(&simulator, &[("appid", odd)]),
        domain,
        page(path::QR_CONFIRM),
        simulator.control_url(),
        page(
            "/wwopen/sso/qrConnect?appid=wwdemo&agentid=1000002&redirect_uri=http%3A%2F%2Fa.example&state=%22%3E%3Cscript",
        ),
    ];
    for url in pages {
        let seen = open(url.clone()).await;
        assert!(seen.text.starts_with("<!doctype html>\n<html lang="), "{url}");
        assert!(!seen.text.contains("<script"), "{url}: {}", seen.text);
        assert_eq!(seen.text.matches("color-scheme: light dark").count(), 1, "{url}: no value is read as a template");
        assert!(seen.text.contains("width=device-width") && seen.text.contains("prefers-color-scheme: dark"), "{url}");
        assert!(seen.text.contains("<main") && seen.text.contains("<h1>"), "{url}");
        let policy = seen.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("script"), "{url}");
        assert_eq!(seen.headers[header::CACHE_CONTROL], "no-store", "{url}");
        assert_eq!(seen.headers[header::REFERRER_POLICY], "no-referrer", "{url}");
    }
}

#[tokio::test]
async fn the_members_kind_is_shown_on_the_page() {
    let (simulator, _) = simulator().await;
    let table = [
        (MemberKind::Active, "u1001 · Sales</small></span>"),
        (MemberKind::Disabled, "已禁用"),
        (MemberKind::NotActivated, "未激活"),
        (MemberKind::Linked, "wwpartner/u1001"),
        (MemberKind::Outsider, "非企业成员"),
        (MemberKind::Customer, "外部联系人"),
    ];
    for (kind, expected) in table {
        simulator.switches(|switches| switches.members = [("u1001".to_owned(), kind)].into());
        let seen = open(authorize_url(&simulator, &[])).await;
        let text = unescape(&seen.text);
        let card = text.split("<li>").find(|card| card.contains("王小明")).unwrap();
        assert!(card.contains(expected), "{kind:?}: {card}");
    }
}

#[tokio::test]
async fn the_control_page_has_a_labelled_form_for_every_switch() {
    let (simulator, _) = simulator().await;
    token_of(&simulator, SECRET).await;
    let seen = open(simulator.control_url()).await;
    for info in &SWITCHES {
        let name = info.name;
        assert!(seen.text.contains(&format!("<label for=\"{name}\">")), "{name}");
        assert!(seen.text.contains(&format!("id=\"{name}\" name=\"value\"")), "{name}");
    }
    let text = unescape(&seen.text);
    assert!(text.contains("<td>/cgi-bin/gettoken</td><td>1</td>"));
    assert!(text.contains(&format!("curl -X PATCH http://{}/simulator/switches", simulator.address())));
}

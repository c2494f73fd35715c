use super::*;
use crate::domain::employee::{CorpId, EmployeeId};
use crate::domain::path::PathFault;

fn asking(name: &str) -> Asking {
    Asking {
        name: name.to_owned(),
        address: "203.0.113.7".to_owned(),
        user_agent: "Mozilla/5.0 wxwork/4.1 MicroMessenger/7.0 Chrome/120".to_owned(),
        at: Timestamp::from_seconds(0),
        ago: std::time::Duration::from_secs(12),
        number: "42".to_owned(),
    }
}

#[test]
fn text_from_outside_cannot_become_markup() {
    let page = confirm(Language::English, &asking("<script>alert('x')</script>\"&"), "proof");
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"));
    assert!(!page.contains("<script>"));
}

#[test]
fn the_confirm_page_shows_who_asks() {
    let page = confirm(Language::Chinese, &asking("林小雨"), "p");
    for shown in ["林小雨", "203.0.113.7", "WeCom", "00:00:00 UTC · 12 秒前", ">42<"] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn every_word_of_every_page_is_there_in_both_languages() {
    let claim = BindProofClaim {
        corp_id: CorpId::new("wwpartner"),
        employee_id: EmployeeId::new("p7001"),
        name: "Paula".to_owned(),
        home: "https://desk.example/h5/".to_owned(),
        nonce: "once".to_owned(),
        end: Timestamp::from_seconds(0),
    };
    for language in Language::ALL {
        let pages = [
            sign_in(language, Client::Itagent, "https://desk.example/itagent/", "Firefox/1", PlatformKind::Wecom),
            confirm(language, &asking("Ann"), "proof"),
            bind(language, &claim),
            notice(language, Notice::Confirmed),
            notice(language, Notice::Cancelled),
            error(language, &PathFault::ParentSegment.into(), "id-1"),
        ];
        for (source, page) in [SIGN_IN, CONFIRM, BIND, NOTICE, NOTICE, NOTICE].iter().zip(&pages) {
            assert!(page.contains(&format!("<html lang=\"{}\"", language.tag())) && !page.contains("{{"));
            // A word that is missing shows as its own name.
            for name in source.split("{{").skip(1).filter_map(|part| part.split_once("}}").map(|(name, _)| name)) {
                assert!(!name.contains('_') || !page.contains(&format!(">{name}<")), "{name}");
                assert!(!name.contains('_') || !page.contains(&format!("=\"{name}\"")), "{name}");
            }
        }
        assert!(pages[5].contains("1400") && pages[5].contains("id-1"));
        assert!(pages[2].contains("Paula (wwpartner/p7001)"));
    }
}

#[test]
fn inside_the_platforms_own_client_the_redirect_comes_first() {
    for (agent, in_app) in [("Mozilla/5.0 wxwork/4.1 MicroMessenger/7.0", "yes"), ("Mozilla/5.0 Chrome/120", "no")] {
        let page = sign_in(Language::English, Client::H5, "https://desk.example/h5/", agent, PlatformKind::Wecom);
        assert!(page.contains(&format!("data-in-app=\"{in_app}\"")), "{agent}");
    }
}

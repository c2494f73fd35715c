use std::collections::BTreeSet;

use super::*;
use crate::domain::path::PathFault;

fn details(name: &str) -> ConfirmDetails<'_> {
    ConfirmDetails {
        name,
        address: "203.0.113.7",
        user_agent: "Mozilla/5.0 wxwork/4.1 MicroMessenger/7.0 Chrome/120",
        requested_at: Timestamp::from_seconds(0),
        ago: Duration::from_secs(12),
        number: "42",
    }
}

fn member(name: &str) -> UnboundMember<'_> {
    UnboundMember {
        corp_id: "wwpartner",
        user_id: "p7001",
        name,
        home: "https://desk.example/h5/",
        requested: None,
        requested_corp: None,
    }
}

/// The sign-in page in a browser and in the WeCom app.
fn sign_in_pages(language: Language) -> [String; 2] {
    ["Mozilla/5.0 Chrome/120", "Mozilla/5.0 wxwork/4.1 MicroMessenger/7.0"].map(|user_agent| {
        sign_in(language, Client::Itagent, "https://desk.example/itagent/", user_agent, PlatformKind::Wecom)
    })
}

#[test]
fn values_are_escaped() {
    let page = confirm(Language::English, &details("<script>alert('x')</script>\"&"), "proof");
    assert!(page.contains("&lt;script&gt;alert(&#x27;x&#x27;)&lt;&#x2f;script&gt;&quot;&amp;"), "{page}");
    assert!(!page.contains("<script>"));
    let page = bind(Language::English, &UnboundMember { home: "\"><script>", ..member("") });
    assert!(page.contains("data-home=\"&quot;&gt;&lt;script&gt;\""), "{page}");
}

#[test]
fn the_confirm_page_describes_the_browser_that_asks() {
    let page = confirm(Language::Chinese, &details("王小明"), "p");
    for shown in [">王<", "王小明", "203.0.113.7", "WeCom", "00:00:00 UTC · 12 秒前", ">42<"] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn every_page_renders_in_both_languages() {
    for language in Language::ALL {
        let [in_browser, in_app] = sign_in_pages(language);
        let simulated = sign_in(language, Client::H5, "https://desk.example/h5/", "", PlatformKind::Simulated);
        let failed = error(language, &PathFault::ParentSegment.into(), "id-1");
        let bound = bind(language, &member("Paula"));
        let pages = [
            &in_browser,
            &in_app,
            &simulated,
            &confirm(language, &details("Ann"), "proof"),
            &confirm(language, &details(""), "proof"),
            &bound,
            &bind(language, &member("")),
            &notice(language, Notice::Confirmed),
            &notice(language, Notice::Cancelled),
            &failed,
        ];
        for page in pages {
            // An unknown key or variable would make the page empty.
            assert!(page.contains(&format!("<html lang=\"{}\"", language.tag())), "{page}");
            assert!(page.trim_end().ends_with("</html>") && !page.contains("{{") && !page.contains("{%"), "{page}");
        }
        assert!(failed.contains("1400") && failed.contains("id-1"));
        assert!(bound.contains("Paula (wwpartner/p7001)"));
        assert_eq!((simulated.contains("id=\"pretend\""), in_app.contains("id=\"pretend\"")), (true, false));
    }
}

#[test]
fn every_page_text_is_used() {
    let computed = ["client_", "signin_error_", "confirmed_", "cancelled_", "error_"];
    let used: BTreeSet<&str> = TEMPLATES
        .iter()
        .flat_map(|(_, source)| source.split("t.").skip(1))
        .map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default())
        .collect();
    for row in PAGE_MESSAGES {
        let known = used.contains(row.key()) || computed.iter().any(|prefix| row.key().starts_with(prefix));
        assert!(known, "{}", row.key());
    }
}

#[test]
fn in_the_wecom_app_the_redirect_comes_first() {
    let [in_browser, in_app] = sign_in_pages(Language::English);
    assert!(in_app.contains("data-in-app=\"yes\"") && in_app.contains(">Continue with WeCom<"));
    assert!(in_browser.contains("data-in-app=\"no\"") && in_browser.contains(">Open in the WeCom app<"));
}

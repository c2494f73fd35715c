use super::*;
use crate::error::BadRequest;

const BOTH: [Language; 2] = [Language::English, Language::Chinese];

fn asking(name: &str) -> Asking {
    Asking {
        name: name.to_owned(),
        address: "203.0.113.7".to_owned(),
        user_agent: "Mozilla/5.0 wxwork/4.1 MicroMessenger/7.0 Chrome/120".to_owned(),
        at: Timestamp::from_seconds(0),
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
    for shown in ["林小雨", "203.0.113.7", "WeCom", "1970-01-01 00:00:00 UTC", ">42<"] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn every_word_of_every_page_is_there_in_both_languages() {
    for language in BOTH {
        let words = words(language);
        for page in [SIGN_IN, CONFIRM, NOTICE] {
            for name in page.split("{{").skip(1).filter_map(|part| part.split_once("}}").map(|(name, _)| name)) {
                let given = [
                    "lang", "client", "home", "name", "number", "address", "browser", "at", "proof", "heading", "text",
                ];
                assert!(given.contains(&name) || words(name) != name, "{name}");
            }
        }
        let page = error(language, &BadRequest::Path.into(), "id-1");
        assert!(page.contains("1400") && page.contains("id-1"));
    }
}

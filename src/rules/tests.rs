use proptest::prelude::*;

use super::*;
use crate::metrics::Metrics;

fn load(texts: &[&str]) -> Result<RuleSet, Vec<String>> {
    let texts: Vec<(String, String)> =
        texts.iter().enumerate().map(|(i, text)| (format!("{i}.toml"), (*text).to_owned())).collect();
    let metrics = Metrics::new().expect("metrics");
    load_texts(&texts, &["desk"], &metrics).map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

fn rule(name: &str, path: &str) -> String {
    format!("[[rule]]\nname = \"{name}\"\npath = \"{path}\"\nupstream = \"desk\"\npublic = true\n")
}

fn decider(rules: &RuleSet, method: &str, path: &str) -> String {
    match rules.find(method, path) {
        Lookup::Rule(rule) => rule.name.to_string(),
        Lookup::OtherMethods(allow) => format!("405 {allow}"),
        Lookup::Nothing => "404".to_owned(),
    }
}

#[test]
fn the_most_specific_path_wins_whatever_the_order() {
    let rules = [rule("tail", "/a/{*rest}"), rule("one", "/a/{id}"), rule("exact", "/a/b"), rule("deep", "/a/{id}/c")];
    let forwards = rules.concat();
    let backwards: String = rules.iter().rev().cloned().collect();
    for text in [forwards, backwards] {
        let rules = load(&[&text]).expect("sound");
        for (path, expected) in [
            ("/a/b", "exact"),
            ("/a/x", "one"),
            ("/a/x/c", "deep"),
            ("/a/x/d", "tail"),
            ("/a/", "tail"),
            ("/a", "404"),
            ("/", "404"),
        ] {
            assert_eq!(decider(&rules, "GET", path), expected, "{path}");
        }
    }
}

#[test]
fn methods_share_a_path_and_head_follows_get() {
    let text = "[[rule]]\nname=\"r\"\npath=\"/a\"\nmethods=[\"GET\"]\nupstream=\"desk\"\npublic=true\n\
                [[rule]]\nname=\"w\"\npath=\"/a\"\nmethods=[\"POST\"]\nupstream=\"desk\"\nsigned_in=true\n";
    let rules = load(&[text]).expect("sound");
    for (method, expected) in [("GET", "r"), ("HEAD", "r"), ("POST", "w"), ("DELETE", "405 GET, HEAD, POST")] {
        assert_eq!(decider(&rules, method, "/a"), expected, "{method}");
    }
}

#[test]
fn every_fault_is_reported_with_its_line() {
    let broken = "[[rule]]\nname = \"a\"\npath = \"no-slash\"\nupstream = \"nowhere\"\npublic = true\n\n\
                  [[rule]]\nname = \"a\"\npath = \"/x\"\nmethods = [\"FETCH\"]\nupstream = \"desk\"\ncolour = 1\n";
    let found = load(&[broken]).expect_err("faults");
    let expected = [
        "0.toml:3: path: a path starts with `/`",
        "0.toml:4: upstream: there is no `nowhere`; configured: desk",
        "0.toml:12: colour: unknown field",
        "0.toml:8: name: `a` is already used at 0.toml:2",
        "0.toml:10: methods: `FETCH` is not one of",
        "0.toml:8: says nothing about access",
    ];
    for line in expected {
        assert!(found.iter().any(|fault| fault.starts_with(line)), "{line} in {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn rules_that_could_never_be_told_apart_or_reached_are_faults() {
    let table: &[(&str, String, &str)] = &[
        ("two rules for one path", rule("a", "/x/{id}") + &rule("b", "/x/{name}"), "already taken by rule `a`"),
        ("a path of our own", rule("a", "/api/auth/me"), "the gateway's own"),
        ("a path below our own", rule("a", "/api/auth/{*rest}"), "the gateway's own"),
        ("a path that never arrives", rule("a", "/a/../b"), "never arrives"),
        ("a doubled slash", rule("a", "/a//b"), "never arrives"),
        ("a tail in the middle", rule("a", "/{*rest}/b"), "must be the last segment"),
        ("half a segment", rule("a", "/a{id}"), "a whole segment"),
        ("public and restricted", rule("a", "/a") + "roles = [\"admin\"]\n", "a public rule asks nobody"),
        ("not a table", "rule = 1\n".to_owned(), "write `[[rule]]`"),
        ("an unknown table", "[[rules]]\n".to_owned(), "unknown key `rules`"),
        ("not TOML", "[[rule]\n".to_owned(), "0.toml:1: "),
    ];
    for (case, text, expected) in table {
        let found = load(&[text]).expect_err(case);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{case}: {found:#?}");
    }
}

#[test]
fn the_shipped_rules_are_sound() {
    let texts: Vec<(String, String)> =
        SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let rules = load_texts(&texts, &["helpdesk"], &Metrics::new().expect("metrics")).expect("sound");
    assert_eq!(decider(&rules, "GET", "/h5/app.js"), "employee client");
    assert_eq!(decider(&rules, "GET", "/ws/agent"), "agent socket");
    assert_eq!(decider(&rules, "GET", "/nothing"), "404");
}

proptest! {
    #[test]
    fn the_decision_never_depends_on_the_order_of_the_files(
        shuffled in Just(["/a", "/a/{id}", "/a/b", "/a/{*rest}", "/{x}", "/{x}/b", "/c/{*rest}"].to_vec()).prop_shuffle(),
        path in "(/[abc]){1,4}",
    ) {
        let text = |paths: &[&str]| paths.iter().map(|path| rule(path, path)).collect::<String>();
        let sorted = { let mut sorted = shuffled.clone(); sorted.sort_unstable(); sorted };
        let (one, other) = (load(&[&text(&shuffled)]).expect("sound"), load(&[&text(&sorted)]).expect("sound"));
        prop_assert_eq!(decider(&one, "GET", &path), decider(&other, "GET", &path));
    }
}

fn shipped() -> RuleSet {
    let texts: Vec<(String, String)> =
        SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    load_texts(&texts, &["helpdesk"], &Metrics::new().expect("metrics")).expect("sound")
}

proptest! {
    #[test]
    fn an_explanation_says_what_the_live_decision_does(
        method in prop::sample::select(METHODS.to_vec()),
        path in prop::sample::select(vec![
            "/api/queue/next", "/api/conversations", "/api/conversations/7", "/api/conversations/7/messages",
            "/api/diagnostics/pc/commands", "/api/approvals/7/decision", "/api/knowledge/articles", "/ws/agent", "/h5/",
            "/nothing", "/api/queue/a/b/c",
        ]),
        role in prop::option::of(prop::sample::select(matrix::ROLES.to_vec())),
        address in prop::sample::select(vec!["10.1.2.3", "203.0.113.9", "2001:db8::1"]),
        department in prop::sample::select(vec!["", "IT", "Sales"]),
        stepped_up: bool,
    ) {
        let rules = shipped();
        let asked = case::SampleRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            role: role.map(str::to_owned),
            address: address.parse().expect("an address"),
            department: department.to_owned(),
            stepped_up,
            ..case::SampleRequest::default()
        };
        let session = asked.session();
        let live = match rules.find(method, path) {
            Lookup::Rule(rule) => rule.judge(&asked.facts(session.as_ref()), &mut ()).map_or_else(|e| e.code().number(), |_| 0),
            Lookup::OtherMethods(_) => 1405,
            Lookup::Nothing => 1404,
        };
        let explained = rules.explain(&asked, 0);
        prop_assert_eq!(explained.answer.code, live, "{}", explained.to_text());
        // At most one condition of the deciding rule misses, and it is the last that was looked at.
        if let Some(candidate) = explained.candidates.iter().find(|candidate| candidate.decides) {
            let reached: Vec<explain::Outcome> =
                candidate.steps.iter().map(|step| step.outcome).take_while(|o| *o != explain::Outcome::NotReached).collect();
            prop_assert!(reached.iter().rev().skip(1).all(|outcome| *outcome == explain::Outcome::Hit));
        }
    }
}

#[test]
fn the_language_has_a_fault_for_every_slip() {
    let base = "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"desk\"\n";
    let table: &[(&str, &str, &str)] = &[
        ("an unknown role", "roles = [\"agnet\"]", "0.toml:5: roles: `agnet` is not one of user, agent"),
        ("an unknown resource", "access = \"tickets:read\"", "0.toml:5: access: `tickets` is not one of conversations"),
        ("an unknown operation", "access = \"system:reed\"", "0.toml:5: access: `reed` is not one of read, create"),
        ("half an access", "access = \"system\"", "0.toml:5: access: `system` is not of the form"),
        ("granted to nobody", "access = \"system:read\"", "0.toml:5: access: the matrix grants system:read to no role"),
        (
            "no network",
            "signed_in = true\nnetworks = [\"10.0.0.0/33\"]",
            "0.toml:6: networks: `10.0.0.0/33` is no network",
        ),
        ("a bad condition", "signed_in = true\nwhen = 'identity.dept == \"IT\"'", "0.toml:6: when: "),
        ("no such mode", "signed_in = true\nmode = \"audit\"", "0.toml:6: mode: `audit` is not one of enforce, shadow"),
        (
            "no such assertion",
            "signed_in = true\nassertion = \"always\"",
            "0.toml:6: assertion: `always` is not one of session, request, off",
        ),
        ("an assertion that is no word", "signed_in = true\nassertion = false", "0.toml:6: assertion: "),
        (
            "no such key of a rate",
            "signed_in = true\nrate = [{ by = \"ip\", limit = 1, per = \"1s\" }]",
            "0.toml:6: rate.by: `ip` is not one of",
        ),
        (
            "a rate of nothing",
            "signed_in = true\nrate = [{ by = \"rule\", limit = 0, per = \"1s\" }]",
            "0.toml:6: rate: `limit` and `per`",
        ),
        (
            "half a rate",
            "signed_in = true\nrate = [{ by = \"rule\", limit = 1 }]",
            "0.toml:6: rate: missing field `per`",
        ),
        (
            "sockets for nobody",
            "signed_in = true\nwebsocket = { max_per_employee = 0 }",
            "0.toml:6: websocket.max_per_employee",
        ),
        ("public and stepped up", "public = true\nstep_up = true", "0.toml:5: public: a public rule asks nobody"),
        (
            "a case that expects nothing",
            "public = true\n[[case]]\nrequest = { path = \"/a\" }",
            "0.toml:6: expect: give either",
        ),
        (
            "an unknown key of a case",
            "public = true\n[[case]]\nrequest = { pth = \"/a\" }\nexpect = { allow = true }",
            "0.toml:7: request: unknown field `pth`",
        ),
        (
            "a case that fails",
            "public = true\n[[case]]\nrequest = { path = \"/a\" }\nexpect = { deny = 1003 }",
            "0.toml:6: the case fails: expected deny 1003 by rule `a`, got allow",
        ),
        (
            "an endpoint that is not ours",
            "public = true\n[[endpoint]]\npath = \"/a\"",
            "0.toml:7: path: `/a` is none of the gateway's own",
        ),
        (
            "an unknown scope",
            "public = true\n[matrix.user]\nsystem = { read = \"mine\" }",
            "0.toml:7: matrix.user.system.read: `mine` is not one of own",
        ),
        (
            "an unknown resource of the matrix",
            "public = true\n[matrix.user]\nfiles = { read = \"own\" }",
            "0.toml:7: matrix.user: `files` is not one of",
        ),
    ];
    for (case, more, expected) in table {
        let found = load(&[&format!("{base}{more}\n")]).expect_err(case);
        assert!(found.iter().any(|fault| fault.starts_with(expected)), "{case}: {expected}\n{found:#?}");
    }
}

#[test]
fn an_explanation_says_which_assertion_goes_along() {
    let table: &[(&str, &str, Option<&str>, &str)] = &[
        ("the usual one", "signed_in = true", Some("session"), "`desk`\n"),
        ("the same, said", "signed_in = true\nassertion = \"session\"", Some("session"), "`desk`\n"),
        ("the request's", "signed_in = true\nassertion = \"request\"", Some("request"), "`desk`, assertion request\n"),
        ("none", "public = true\nassertion = \"off\"", Some("off"), "`desk`, assertion off\n"),
    ];
    for (case, keys, expected, shown) in table {
        let text = format!("[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"desk\"\n{keys}\n");
        let rules = load(&[&text]).expect("sound");
        let asked = case::SampleRequest {
            path: "/a".to_owned(),
            role: Some("user".to_owned()),
            ..case::SampleRequest::default()
        };
        let explained = rules.explain(&asked, 0);
        assert_eq!(explained.answer.assertion, *expected, "{case}");
        assert!(
            explained.to_text().ends_with(&format!("answer: forwarded to {shown}")),
            "{case}: {}",
            explained.to_text()
        );
        let nobody = rules.explain(&case::SampleRequest { role: None, ..asked }, 0);
        assert_eq!(nobody.answer.assertion, None, "{case}: nobody is signed in");
    }
}

#[test]
fn head_goes_with_get_and_cannot_be_given_twice() {
    let with = |name: &str, method: &str| {
        format!("[[rule]]\nname=\"{name}\"\npath=\"/a\"\nmethods=[\"{method}\"]\nupstream=\"desk\"\npublic=true\n")
    };
    let found = load(&[&(with("one", "GET") + &with("two", "HEAD"))]).expect_err("both could win");
    assert!(found[0].contains("HEAD /a is already taken by rule `one`"), "{found:#?}");
}

#[test]
fn what_two_files_grant_is_a_fault_of_both() {
    let one = "[matrix.user]\nconversations = { read = \"own\" }\n";
    let other = "[matrix.user]\nconversations = { read = \"all\" }\n";
    let found = load(&[one, other]).expect_err("the order must not decide");
    assert!(found[0].starts_with("1.toml:2: matrix.user.conversations.read: granted in another file"), "{found:#?}");
}

#[test]
fn the_rate_that_a_live_request_would_meet_is_the_one_that_is_explained() {
    let text = rule("a", "/a")
        + "rate = [{ by = \"rule\", limit = 300, per = \"1h\" }, { by = \"rule\", limit = 30, per = \"1m\" }]\n";
    let rules = load(&[&text]).expect("sound");
    let asked = case::SampleRequest { path: "/a".to_owned(), ..case::SampleRequest::default() };
    for (before, code, wait) in [(29, 0, None), (30, 1429, Some(60)), (400, 1429, Some(60))] {
        let answer = rules.explain(&asked, before).answer;
        assert_eq!((answer.code, answer.retry_after), (code, wait), "after {before}");
    }
}

#[test]
fn many_neighbours_are_told_apart_like_few() {
    for count in [1, 7, 8, 9, 200] {
        let text: String = (0..count).map(|n| rule(&format!("r{n}"), &format!("/a/n{n}/x"))).collect();
        let rules = load(&[&(text + &rule("any", "/a/{id}/x") + &rule("tail", "/a/{*rest}"))]).expect("sound");
        for n in 0..count {
            assert_eq!(decider(&rules, "GET", &format!("/a/n{n}/x")), format!("r{n}"), "of {count}");
            assert_eq!(decider(&rules, "GET", &format!("/a/n{n}/y")), "tail", "of {count}");
        }
        assert_eq!(decider(&rules, "GET", "/a/other/x"), "any", "of {count}");
        assert_eq!(rules.candidates("/a/n0/x").len(), 3, "of {count}");
    }
}

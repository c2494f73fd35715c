use proptest::prelude::*;

use super::*;
use crate::config::NamedUpstream;
use crate::metrics::Metrics;

fn load(texts: &[&str]) -> Result<RuleSet, Vec<String>> {
    let texts: Vec<(String, String)> =
        texts.iter().enumerate().map(|(i, text)| (format!("{i}.toml"), (*text).to_owned())).collect();
    let metrics = Metrics::new().expect("metrics");
    load_texts(&texts, &["desk".into()], &metrics).map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

/// Loads rules of `desk`, which tells upper from lower case, and of `loose`, which does not.
fn load_both(text: &str) -> Result<RuleSet, Vec<String>> {
    let upstreams = [("desk", PathCase::Sensitive), ("loose", PathCase::Insensitive)]
        .map(|(name, path_case)| NamedUpstream { path_case, ..name.into() });
    let texts = [("0.toml".to_owned(), text.to_owned())];
    let metrics = Metrics::new().expect("metrics");
    load_texts(&texts, &upstreams, &metrics).map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

fn loose(name: &str, path: &str) -> String {
    rule(name, path).replace("desk", "loose")
}

fn rule(name: &str, path: &str) -> String {
    format!("[[rule]]\nname = \"{name}\"\npath = \"{path}\"\nupstream = \"desk\"\npublic = true\n")
}

fn decider(rules: &RuleSet, method: &str, path: &str) -> String {
    match rules.find(method, path) {
        RuleMatch::Rule(rule) => rule.name.to_string(),
        RuleMatch::OtherMethods(allow) => format!("405 {allow}"),
        RuleMatch::NotFound => "404".to_owned(),
    }
}

#[test]
fn the_most_specific_path_wins_whatever_the_order() {
    let rules = [rule("tail", "/a/{*rest}"), rule("one", "/a/{id}"), rule("exact", "/a/b"), rule("deep", "/a/{id}/c")];
    let forwards = rules.concat();
    let backwards: String = rules.iter().rev().cloned().collect();
    for text in [forwards, backwards] {
        let rules = load(&[&text]).expect("valid rules");
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
fn the_most_specific_path_wins_among_upstreams_of_both_kinds() {
    let rules = [
        rule("everything", "/{*rest}"),
        rule("exact tail", "/a/{*rest}"),
        rule("exact", "/a/B"),
        loose("literal", "/A/Admin"),
        loose("deep", "/a/{id}/c"),
        loose("umlaut", "/%C3%84rger"),
        loose("loose tail", "/b/{*rest}"),
    ];
    let backwards: String = rules.iter().rev().cloned().collect();
    for text in [rules.concat(), backwards] {
        let rules = load_both(&text).expect("valid rules");
        for (path, expected) in [
            ("/a/admin", "literal"),
            ("/A/ADMIN", "literal"),
            ("/a/B", "exact"),
            ("/a/b", "exact tail"),
            ("/a/x/C", "deep"),
            ("/A/x/c", "deep"),
            ("/a/x/d", "exact tail"),
            ("/A/x/d", "everything"),
            ("/B/x", "loose tail"),
            ("/%C3%A4RGER", "umlaut"),
        ] {
            assert_eq!(decider(&rules, "GET", path), expected, "{path}");
            let first = rules.candidates(path).first().map(|rule| rule.name.to_string());
            assert_eq!(first.as_deref(), Some(expected), "{path}: candidates");
        }
    }
}

#[test]
fn paths_that_differ_only_in_case_conflict_if_an_upstream_ignores_it() {
    let post = |text: String| text + "methods = [\"POST\"]\n";
    let get = |text: String| text + "methods = [\"GET\"]\n";
    for (case, text, valid) in [
        ("both tell them apart", rule("a", "/x") + &rule("b", "/X"), true),
        ("both ignore it", loose("a", "/x") + &loose("b", "/X"), false),
        ("only one ignores it", rule("a", "/x/{id}") + &loose("b", "/X/{id}"), false),
        ("the same path, only one ignores it", get(rule("a", "/x")) + &post(loose("b", "/x")), false),
        ("other methods", get(loose("a", "/x")) + &post(loose("b", "/X")), true),
        ("not ASCII", loose("a", "/%C3%A4") + &loose("b", "/%C3%84"), false),
    ] {
        let loaded = load_both(&text);
        assert_eq!(loaded.is_ok(), valid, "{case}");
        if let Err(faults) = loaded {
            assert!(
                faults.len() == 1 && faults[0].contains("path: ") && faults[0].contains("`a`"),
                "{case}: {faults:?}"
            );
            assert!(faults[0].contains("case"), "{case}: {faults:?}");
        }
    }
}

#[test]
fn a_literal_that_another_spelling_misses_is_a_gap_if_another_rule_matches_it() {
    for (literal, other, is_gap) in [
        ("/a/purge", "/a/{*rest}", true),
        ("/users/admin", "/users/{id}", true),
        ("/users/admin", "/users/{*rest}", true),
        ("/users/admin", "/{kind}/{id}", true),
        ("/a/{x}/b", "/a/{y}/{*rest}", true),
        ("/a/{x}/b", "/a/{y}/{z}", true),
        ("/a/{x}/b", "/{y}/{*rest}", true),
        ("/a/b/{x}", "/a/{y}/c", true),
        ("/admin/{*rest}", "/{x}/users", true),
        ("/admin/{*rest}", "/{x}/{*rest}", true),
        ("/a/7/{x}/b", "/a/{y}/c/{*rest}", true),
        ("/admin", "/Admin", true),
        ("/admin/x", "/ADMIN/{*rest}", true),
        ("/caf%C3%A9", "/{name}", true),
        ("/users/7", "/users/{id}", false),
        ("/users/admin", "/users/root", false),
        ("/users/admin", "/groups/{id}", false),
        ("/users/admin", "/users/{id}/name", false),
        ("/users/admin/name", "/users/{id}", false),
        ("/users/admin", "/{x}/admin/{*rest}", false),
        ("/admin/{*rest}", "/{x}", false),
        ("/users/", "/users/{id}", false),
        // Another rule decides, whatever the spelling of `b`.
        ("/7/{x}/b", "/7/c/{*rest}", false),
    ] {
        let rules = load(&[&[rule("literal", literal), rule("other", other)].concat()]).expect("valid rules");
        let found = rules.case_gaps().any(|gap| &*gap.literal.name == "literal");
        assert_eq!(found, is_gap, "{literal} beside {other}");
    }
}

/// Whether the rule of a path admits an anonymous request.
fn admits(rules: &RuleSet, path: &str) -> bool {
    let sample = case::SampleRequest { path: path.to_owned(), ..case::SampleRequest::default() };
    match rules.find("GET", path) {
        RuleMatch::Rule(rule) => rule.evaluate(&sample.input(None), &mut ()).is_ok(),
        RuleMatch::OtherMethods(_) | RuleMatch::NotFound => panic!("no rule for {path}"),
    }
}

#[test]
fn conditions_compare_paths_as_the_upstream_does() {
    const SPELLINGS: [&str; 5] = ["/x/admin/y", "/x/ADMIN/y", "/X/Admin/y", "/x/adm%C4%B1n/y", "/x/%C3%89t%C3%A9"];
    // The dotless i in the fourth has the same capital as `i`.
    let table: &[(&str, [bool; 5])] = &[
        ("request.path.startsWith('/x/admin')", [true, true, true, true, false]),
        ("request.path.startsWith('/X/Admin')", [true, true, true, true, false]),
        ("!request.path.startsWith('/X/ADMIN')", [false, false, false, false, true]),
        ("request.path.contains('ADMIN')", [true, true, true, true, false]),
        ("request.path.endsWith('/Y')", [true, true, true, true, false]),
        ("request.path == '/x/Admin/Y'", [true, true, true, true, false]),
        ("'/x/Admin/Y' != request.path", [false, false, false, false, true]),
        ("request.path in ['/other', '/X/ADMIN/y']", [true, true, true, true, false]),
        ("['/X/Admin', '/z'].exists(start, request.path.startsWith(start))", [true, true, true, true, false]),
        ("request.path.matches('^/X/Admin/')", [true, true, true, true, false]),
        ("request.path.matches('[A-Z]{5}/')", [true, true, true, true, false]),
        ("request.path.endsWith('/%C3%A9t%C3%A9')", [false, false, false, false, true]),
        ("request.path.endsWith('/ÉTÉ')", [false, false, false, false, true]),
        ("'/X/ADMIN/Y/Z'.startsWith(request.path)", [true, true, true, true, false]),
        ("request.method == 'get'", [false; 5]),
    ];
    for (condition, expected) in table {
        let text = format!("{}when = \"{condition}\"\n", loose("a", "/x/{*rest}"));
        let rules = load_both(&text).unwrap_or_else(|faults| panic!("{condition}: {faults:?}"));
        assert_eq!(SPELLINGS.map(|path| admits(&rules, path)), *expected, "{condition}");
    }
    let text = format!("{}when = \"request.path.startsWith('/x/admin')\"\n", rule("a", "/{*rest}"));
    let rules = load_both(&text).expect("valid rules");
    assert_eq!(SPELLINGS.map(|path| admits(&rules, path)), [true, false, false, false, false], "tells case apart");
}

#[test]
fn conditions_that_cannot_ignore_case_are_faults_if_the_upstream_does() {
    for condition in ["[request.path].exists(path, path == '/X')", "!request.path.matches('/%C3%A9')"] {
        let when = format!("when = \"{condition}\"\n");
        let faults = load_both(&format!("{}{when}", loose("a", "/x"))).expect_err(condition);
        assert!(faults.concat().contains("`request.path`"), "{faults:?}");
        load_both(&format!("{}{when}", rule("a", "/x"))).expect("valid rules");
    }
}

#[test]
fn rules_of_one_path_are_told_apart_by_method_and_get_includes_head() {
    let text = "[[rule]]\nname=\"r\"\npath=\"/a\"\nmethods=[\"GET\"]\nupstream=\"desk\"\npublic=true\n\
                [[rule]]\nname=\"w\"\npath=\"/a\"\nmethods=[\"POST\"]\nupstream=\"desk\"\nsigned_in=true\n";
    let rules = load(&[text]).expect("valid rules");
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
        "0.toml:8: access is missing",
    ];
    for line in expected {
        assert!(found.iter().any(|fault| fault.starts_with(line)), "{line} in {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn ambiguous_and_unreachable_rules_are_faults() {
    let table: &[(&str, String, &str)] = &[
        ("two rules for one path", rule("a", "/x/{id}") + &rule("b", "/x/{name}"), "already belongs to rule `a`"),
        ("a reserved path", rule("a", "/api/auth/me"), "reserved for the gateway's own endpoints"),
        ("a path below a reserved one", rule("a", "/api/auth/{*rest}"), "reserved for the gateway's own endpoints"),
        ("a path that never arrives", rule("a", "/a/../b"), "the path has `..`: such a request is refused"),
        ("a doubled slash", rule("a", "/a//b"), "the path has `//`: such a request is refused"),
        ("an escape of a bare character", rule("a", "/x/%7Ejoe/{id}"), "write it as `/x/~joe/{id}`"),
        ("an escape in lower case", rule("a", "/%c3%a4/{*rest}"), "write it as `/%C3%A4/{*rest}`"),
        ("bare characters", rule("a", "/käse/a b/{id}"), "write it as `/k%C3%A4se/a%20b/{id}`"),
        ("a blank around a segment", rule("a", "/a /b"), "such a request is refused"),
        ("a fragment", rule("a", "/x#y"), "a fragment is no part of a path"),
        ("a query", rule("a", "/x?y=1"), "a query is no part of a path"),
        ("a query behind a parameter", rule("a", "/x/{id}?y=1"), "a query is no part of a path"),
        ("a star", rule("a", "/adm/*"), "`*`: write `{*rest}`"),
        ("two stars", rule("a", "/adm/**"), "`**`: write `{*rest}`"),
        ("a star in the middle", rule("a", "/adm/*/x"), "`*`: write `{id}`"),
        ("a star behind a prefix", rule("a", "/adm*"), "`adm*`: "),
        ("an encoded star", rule("a", "/adm/%2A"), "`%2A`: write `{*rest}`"),
        ("a colon", rule("a", "/users/:id"), "`:id`: write `{id}`"),
        ("a colon in the middle", rule("a", "/users/:user-id/x"), "`:user-id`: write `{user_id}`"),
        ("an encoded colon", rule("a", "/users/%3Aid"), "`%3Aid`: write `{id}`"),
        ("an empty colon", rule("a", "/users/:"), "`:`: write `{id}`"),
        ("a tail in the middle", rule("a", "/{*rest}/b"), "must be the last segment"),
        ("half a segment", rule("a", "/a{id}"), "a whole segment"),
        ("public and restricted", rule("a", "/a") + "roles = [\"admin\"]\n", "a public rule identifies no caller"),
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
fn colons_and_stars_inside_a_segment_are_literal() {
    for path in ["/v1/jobs:purge", "/v1/{id}/jobs:purge", "/a*b/c", "/*a", "/a:"] {
        let rules = load(&[&rule("a", path)]).unwrap_or_else(|faults| panic!("{path}: {faults:?}"));
        assert_eq!(decider(&rules, "GET", &path.replace("{id}", "7")), "a", "{path}");
    }
}

#[test]
fn the_shipped_rules_load() {
    let texts: Vec<(String, String)> =
        SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let rules = load_texts(&texts, &["helpdesk".into()], &Metrics::new().expect("metrics")).expect("valid rules");
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
        let (one, other) = (load(&[&text(&shuffled)]).expect("valid rules"), load(&[&text(&sorted)]).expect("valid rules"));
        prop_assert_eq!(decider(&one, "GET", &path), decider(&other, "GET", &path));
    }
}

#[test]
fn every_mistake_in_a_rule_is_a_fault_with_its_line() {
    let base = "[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"desk\"\n";
    let table: &[(&str, &str, &str)] = &[
        ("an unknown role", "roles = [\"agnet\"]", "0.toml:5: roles: `agnet` is not one of user, agent"),
        ("an unknown resource", "access = \"tickets:read\"", "0.toml:5: access: `tickets` is not one of conversations"),
        ("an unknown operation", "access = \"system:reed\"", "0.toml:5: access: `reed` is not one of read, create"),
        ("half an access", "access = \"system\"", "0.toml:5: access: `system` is not of the form"),
        (
            "granted to no role",
            "access = \"system:read\"",
            "0.toml:5: access: the matrix grants system:read to no role",
        ),
        (
            "a malformed network",
            "signed_in = true\nnetworks = [\"10.0.0.0/33\"]",
            "0.toml:6: networks: `10.0.0.0/33` is not a network",
        ),
        ("a bad condition", "signed_in = true\nwhen = 'identity.dept == \"IT\"'", "0.toml:6: when: "),
        ("no such mode", "signed_in = true\nmode = \"audit\"", "0.toml:6: mode: `audit` is not one of enforce, shadow"),
        (
            "anonymous callers of an enforced rule",
            "signed_in = true\nshadow_anonymous = true",
            "0.toml:6: shadow_anonymous: only for a rule with `mode = \"shadow\"`",
        ),
        (
            "anonymous callers of a public rule",
            "public = true\nmode = \"shadow\"\nshadow_anonymous = true",
            "0.toml:7: shadow_anonymous: a public rule lets everyone pass",
        ),
        ("no such cors", "signed_in = true\ncors = \"*\"", "0.toml:6: cors: `*` is not one of gateway, upstream"),
        (
            "no such assertion",
            "signed_in = true\nassertion = \"always\"",
            "0.toml:6: assertion: `always` is not one of session, request, off",
        ),
        ("an assertion that is not a string", "signed_in = true\nassertion = false", "0.toml:6: assertion: "),
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
            "no sockets",
            "signed_in = true\nwebsocket = { max_per_employee = 0 }",
            "0.toml:6: websocket.max_per_employee",
        ),
        (
            "public and stepped up",
            "public = true\nstep_up = true",
            "0.toml:5: public: a public rule identifies no caller",
        ),
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
            "an unknown endpoint",
            "public = true\n[[endpoint]]\npath = \"/a\"",
            "0.toml:7: path: `/a` is not an endpoint of the gateway",
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
fn get_includes_head_so_a_second_rule_for_head_is_a_fault() {
    let with = |name: &str, method: &str| {
        format!("[[rule]]\nname=\"{name}\"\npath=\"/a\"\nmethods=[\"{method}\"]\nupstream=\"desk\"\npublic=true\n")
    };
    let found = load(&[&(with("one", "GET") + &with("two", "HEAD"))]).expect_err("two rules");
    assert!(found[0].contains("HEAD /a already belongs to rule `one`"), "{found:#?}");
}

#[test]
fn a_grant_in_two_files_is_a_fault() {
    let one = "[matrix.user]\nconversations = { read = \"own\" }\n";
    let other = "[matrix.user]\nconversations = { read = \"all\" }\n";
    let found = load(&[one, other]).expect_err("two grants");
    assert!(
        found[0].starts_with("1.toml:2: matrix.user.conversations.read: already granted in another file"),
        "{found:#?}"
    );
}

#[test]
fn routing_is_the_same_for_few_and_many_literals() {
    for count in [1, 7, 8, 9, 200] {
        let text: String = (0..count).map(|n| rule(&format!("r{n}"), &format!("/a/n{n}/x"))).collect();
        let rules = load(&[&(text + &rule("any", "/a/{id}/x") + &rule("tail", "/a/{*rest}"))]).expect("valid rules");
        for n in 0..count {
            assert_eq!(decider(&rules, "GET", &format!("/a/n{n}/x")), format!("r{n}"), "of {count}");
            assert_eq!(decider(&rules, "GET", &format!("/a/n{n}/y")), "tail", "of {count}");
        }
        assert_eq!(decider(&rules, "GET", "/a/other/x"), "any", "of {count}");
        assert_eq!(rules.candidates("/a/n0/x").len(), 3, "of {count}");
    }
}

#[test]
fn rates_are_shared_unless_they_count_addresses_or_say_otherwise() {
    use rate::RateScope::{Local, Shared};
    for (rate, counted) in [
        ("by = \"employee\"", Shared),
        ("by = \"session\"", Shared),
        ("by = \"role\"", Shared),
        ("by = \"rule\"", Shared),
        ("by = \"address\"", Local),
        ("by = \"address\", shared = true", Shared),
        ("by = \"rule\", shared = false", Local),
    ] {
        let text = format!("{}rate = [{{ {rate}, limit = 5, per = \"1m\" }}]\n", rule("a", "/a"));
        let rules = load(&[&text]).expect("rules");
        let RuleMatch::Rule(rule) = rules.find("GET", "/a") else { panic!("{rate}") };
        assert_eq!(rule.rates[0].counted, counted, "{rate}");
    }
}

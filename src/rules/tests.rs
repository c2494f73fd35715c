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
    for (method, expected) in [("GET", "r"), ("HEAD", "r"), ("POST", "w"), ("DELETE", "405 GET, POST")] {
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

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::metrics::Metrics;
use crate::rules::{METHODS, RuleMatch, SHIPPED, load_texts, matrix};

fn load(text: &str) -> RuleSet {
    let texts = [("0.toml".to_owned(), text.to_owned())];
    load_texts(&texts, &["desk".into()], &Metrics::new().expect("metrics")).expect("valid rules")
}

fn rule(keys: &str) -> String {
    format!("[[rule]]\nname = \"a\"\npath = \"/a\"\nupstream = \"desk\"\n{keys}\n")
}

fn explain(rules: &RuleSet, sample: &SampleRequest, before: u32) -> Explanation {
    Explainer::new(rules, &Config::default()).explain(sample, before)
}

fn sample(method: &str, path: &str, role: Option<&str>) -> SampleRequest {
    SampleRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        role: role.map(str::to_owned),
        ..SampleRequest::default()
    }
}

static SHIPPED_RULES: LazyLock<RuleSet> = LazyLock::new(|| {
    let texts: Vec<(String, String)> =
        SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    load_texts(&texts, &["helpdesk".into()], &Metrics::new().expect("metrics")).expect("valid rules")
});

proptest! {
    #[test]
    fn explain_and_the_rule_agree(
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
        let rules = &*SHIPPED_RULES;
        let sample = SampleRequest {
            address: address.parse().expect("an address"),
            department: department.to_owned(),
            stepped_up,
            ..sample(method, path, role)
        };
        let session = sample.session();
        let live = match rules.find(method, path) {
            RuleMatch::Rule(rule) => rule.evaluate(&sample.input(session.as_ref()), &mut ()).map_or_else(|e| e.code().number(), |_| 0),
            RuleMatch::OtherMethods(_) => 1405,
            RuleMatch::NotFound => 1404,
        };
        let explained = explain(rules, &sample, 0);
        prop_assert_eq!(explained.answer.code, live, "{}", explained.to_text());
        // At most one check of the deciding rule fails, and it is the last one evaluated.
        if let Some(candidate) = explained.candidates.iter().find(|candidate| candidate.decides) {
            let outcomes = candidate.checks.iter().map(|check| check.outcome);
            let reached: Vec<CheckOutcome> = outcomes.take_while(|it| *it != CheckOutcome::NotReached).collect();
            prop_assert!(reached.iter().rev().skip(1).all(|outcome| *outcome == CheckOutcome::Hit));
        }
    }
}

#[test]
fn the_answer_names_the_assertion_of_signed_in_callers() {
    let table: &[(&str, &str, Option<&str>, &str)] = &[
        ("the default", "signed_in = true", Some("session"), "`desk`\n"),
        ("the default, explicit", "signed_in = true\nassertion = \"session\"", Some("session"), "`desk`\n"),
        ("per request", "signed_in = true\nassertion = \"request\"", Some("request"), "`desk`, assertion request\n"),
        ("none", "public = true\nassertion = \"off\"", Some("off"), "`desk`, assertion off\n"),
    ];
    for (case, keys, expected, shown) in table {
        let rules = load(&rule(keys));
        let explained = explain(&rules, &sample("GET", "/a", Some("user")), 0);
        assert_eq!(explained.answer.assertion, *expected, "{case}");
        assert!(
            explained.to_text().ends_with(&format!("answer: forwarded to {shown}")),
            "{case}: {}",
            explained.to_text()
        );
        let anonymous = explain(&rules, &sample("GET", "/a", None), 0);
        assert_eq!(anonymous.answer.assertion, None, "{case}: anonymous");
    }
}

#[test]
fn rates_are_charged_as_for_live_requests() {
    let rates = "rate = [{ by = \"rule\", limit = 300, per = \"1h\" }, { by = \"rule\", limit = 30, per = \"1m\" }]";
    let rules = load(&rule(&format!("public = true\n{rates}")));
    for (before, code, wait) in [(29, 0, None), (30, 1429, Some(60)), (400, 1429, Some(60))] {
        let answer = explain(&rules, &sample("GET", "/a", None), before).answer;
        assert_eq!((answer.code, answer.retry_after), (code, wait), "after {before}");
    }
}

#[test]
fn development_routes_are_forbidden_outside_development_mode() {
    let rules = load(&rule("public = true"));
    let mut config = Config::default();
    for (development, method, code, outcome) in [
        (false, "POST", 1003, Some(CheckOutcome::Miss)),
        (false, "GET", 1003, None),
        (true, "POST", 0, Some(CheckOutcome::Hit)),
        (true, "GET", 1405, None),
    ] {
        config.server.development = development;
        let explained = Explainer::new(&rules, &config).explain(&sample(method, "/api/dev/login", None), 0);
        assert_eq!(explained.answer.code, code, "{method}: {}", explained.to_text());
        let checks = explained.candidates.first().map(|candidate| &candidate.checks);
        let found = checks.and_then(|all| all.iter().find(|it| it.check == "development")).map(|it| it.outcome);
        assert_eq!(found, outcome, "{method}: {}", explained.to_text());
        if code == 1003 {
            assert_eq!(explained.answer.reason.as_deref(), Some("forbidden: development mode is off"));
        }
    }
}

#[test]
fn endpoints_are_explained_by_their_own_checks() {
    let rules = load(&rule("public = true"));
    let stepped_up = |sample: SampleRequest| SampleRequest { stepped_up: true, ..sample };
    let table: &[(&str, SampleRequest, u16, Option<&str>)] = &[
        ("for every client", sample("GET", "/api/ready", None), 0, None),
        ("no token", sample("GET", "/api/auth/me", None), 1001, Some("signed_in")),
        ("a token", sample("GET", "/api/auth/me", Some("user")), 0, None),
        ("another role", sample("GET", "/api/admin/roles/user-roles", Some("user")), 1003, Some("roles")),
        ("an admin", sample("GET", "/api/admin/roles/user-roles", Some("admin")), 0, None),
        ("no step-up", sample("DELETE", "/api/admin/otp", Some("admin")), 1021, Some("step_up")),
        ("stepped up", stepped_up(sample("DELETE", "/api/admin/otp", Some("admin"))), 0, None),
        ("another method", sample("PUT", "/api/auth/me", Some("user")), 1405, None),
        ("no such endpoint", sample("GET", "/api/auth/none", Some("user")), 1404, None),
    ];
    for (case, sample, code, by) in table {
        let explained = explain(&rules, sample, 0);
        assert_eq!((explained.answer.code, explained.answer.by), (*code, *by), "{case}: {}", explained.to_text());
    }
}

#[test]
fn the_reason_names_the_fault_of_a_path() {
    let rules = load(&rule("public = true"));
    for (path, reason) in [
        ("/a/../b", "the path has `..`"),
        ("/a//b", "the path has `//`"),
        ("/a%2fb", "the path has an encoded slash"),
        ("/a%00", "the path has a NUL"),
        ("a", "the target is neither a path nor an http URL"),
    ] {
        let answer = explain(&rules, &sample("GET", path, None), 0).answer;
        assert_eq!((answer.code, answer.reason.as_deref()), (1400, Some(reason)), "{path}");
    }
}

#[test]
fn shadow_mode_allows_signed_in_callers_and_says_what_it_would_refuse() {
    let anonymous = "shadow: would be refused with 1001: no credentials";
    let user = "shadow: would be refused with 1003: ";
    for (keys, role, code, reason) in [
        ("", None, 1001, Some("no credentials")),
        ("", Some("user"), 0, Some(user)),
        ("", Some("admin"), 0, None),
        ("\nshadow_anonymous = true", None, 0, Some(anonymous)),
        ("\nshadow_anonymous = true", Some("user"), 0, Some(user)),
    ] {
        let rules = load(&rule(&format!("roles = [\"admin\"]\nmode = \"shadow\"{keys}")));
        let answer = explain(&rules, &sample("GET", "/a", role), 0).answer;
        assert_eq!(answer.code, code, "{keys} {role:?}");
        match (answer.reason.as_deref(), reason) {
            (Some(found), Some(expected)) => assert!(found.starts_with(expected), "{found}"),
            (found, expected) => assert_eq!(found, expected, "{keys} {role:?}"),
        }
    }
}

#[test]
fn a_case_fails_with_its_line_and_the_explanation() {
    let case = "[[case]]\nrequest = { path = \"/a\" }\nexpect = { deny = 1003 }\n";
    let rules = load(&format!("{}{case}", rule("public = true")));
    let faults = check_cases(&rules).expect_err("the case fails");
    let expected = "0.toml:6: the case fails: expected deny 1003 by rule `a`, got allow";
    assert!(faults.len() == 1 && faults[0].to_string().starts_with(expected), "{faults:#?}");
    assert!(faults[0].why.contains("hit          path       /a"), "{faults:#?}");
}

#[test]
fn cases_leave_no_trace_in_the_metrics() {
    let case = "[[case]]\nrequest = { path = \"/a\" }\nexpect = { allow = true }\n";
    let rules = load(&format!("{}{case}", rule("public = true")));
    check_cases(&rules).expect("the case holds");
    let RuleMatch::Rule(rule) = rules.find("GET", "/a") else { panic!("no rule") };
    assert_eq!(rule.metrics.allowed.get(), 0);
}

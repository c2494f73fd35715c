//! Conditions: their values, their faults and their highest cost.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cel::{Context, Program};
use proptest::prelude::*;

use super::*;

fn compile(text: &str) -> Result<Condition, String> {
    Condition::compile(text, PathCase::Sensitive)
}

const ALICE: IdentityVariables<'static> = IdentityVariables {
    employee_id: "E1001",
    name: "Zoë",
    corp_id: "acme",
    department: "IT",
    roles: &["admin", "agent"],
    current_role: "agent",
    login_source: "wecom",
    login_method: "qr",
};

fn request() -> RequestVariables<'static> {
    RequestVariables { method: "GET", path: "/api/tickets/7", address: [10, 1, 2, 3].into() }
}

#[test]
fn conditions_evaluate_as_cel_defines() {
    // The condition, its value for Alice, and its value for an anonymous request.
    let table: &[(&str, bool, bool)] = &[
        (r#"identity.department == "IT" && request.method != "DELETE""#, true, false),
        (r#"identity.department == 'HR' || identity.current_role == "agent""#, true, false),
        (r#"!(identity.department == "IT")"#, false, true),
        (r#"identity.department != """#, true, false),
        ("has(identity.department)", true, false),
        ("has(identity.roles) && has(request.path)", true, false),
        (r#""admin" in identity.roles"#, true, false),
        (r#"identity.department in ["HR", "IT"]"#, true, false),
        (r#"identity.department in []"#, false, false),
        (r#"request.method in ["GET", "HEAD"]"#, true, true),
        ("identity.current_role in identity.roles", true, false),
        (r#"identity.roles.exists(role, role.startsWith("adm"))"#, true, false),
        (r#"identity.roles.all(role, role.startsWith("a"))"#, true, true),
        (r#"identity.roles.all(role, role == "admin")"#, false, true),
        (r#"["/api/", "/ui/"].exists(start, request.path.startsWith(start))"#, true, true),
        (r#"identity.roles.exists(a, ["admin", "x"].exists(b, a == b))"#, true, false),
        (r#"["x"].all(a, identity.roles.all(b, a == b))"#, false, true),
        (r#"["x"].all(a, ["y"].all(b, a == "x" && b == "y"))"#, true, true),
        (r#"["x"].all(a, ["y"].all(a, a == "y") && a == "x")"#, true, true),
        ("identity.roles.size() == 2", true, false),
        ("size(identity.roles) >= 1 && size([]) == 0", true, false),
        ("size(identity.name) == 3", true, false),
        ("size(identity.name) > -1", true, true),
        (r#"identity.employee_id < "E2" && identity.employee_id >= "E1""#, true, false),
        (r#"request.path.contains("/tickets/")"#, true, true),
        (r#"request.path.endsWith("/7")"#, true, true),
        (r#"request.path.matches("^/api/tickets/[0-9]+$")"#, true, true),
        (r#"matches(identity.employee_id, r"^E\d{4}$")"#, true, false),
        (r#"identity.name.matches("(?i)ZOË")"#, true, false),
        (r#"identity.name.matches(r"^\w+$") && !identity.name.matches(r"(?-u:\b)oë")"#, true, false),
        (r#"request.address == "10.1.2.3""#, true, true),
        (r#"request.address.startsWith("10.")"#, true, true),
        (r#"identity.login_source == "wecom" ? identity.login_method == "qr" : request.method == "GET""#, true, true),
        (r#"(identity.department == "IT") == (identity.corp_id == "acme")"#, true, true),
        (r#"(identity.department == "IT") != true"#, false, true),
        ("true", true, true),
        ("false // a comment", false, false),
        ("\n  identity.department == \"IT\"\n  && true\n", true, false),
    ];
    for (text, alice, anonymous) in table {
        let condition = compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(condition.text(), *text);
        assert_eq!(condition.holds(Some(&ALICE), &request()), Ok(*alice), "{text}, for Alice");
        assert_eq!(condition.holds(None, &request()), Ok(*anonymous), "{text}, anonymous");
    }
}

#[test]
fn invalid_conditions_are_refused_with_a_message_in_one_line() {
    let long = format!("true{}", " ".repeat(LONGEST_TEXT));
    let parentheses = format!("{}true{}", "(".repeat(40), ")".repeat(40));
    let choices = format!("{}true", "true?true:".repeat(40));
    let comparisons = format!("true{}", " == true".repeat(40));
    let table: &[(&str, &[&str])] = &[
        ("", &["line 1, column 1"]),
        ("identity.department ==", &["line 1, column 23"]),
        ("true &&\n  (false", &["line 2, column"]),
        ("identity.department = 'IT'", &["column 21"]),
        ("true #", &["column 6"]),
        ("'open", &["column 1"]),
        ("user.name == 'x'", &["`user` is unknown", "`identity`", "`request`"]),
        (".identity.name == 'x'", &["`.identity` is unknown"]),
        ("int == int", &["`int` is unknown"]),
        ("identity.departmnt == 'IT'", &["`identity.departmnt` is unknown", "department", "roles"]),
        ("request.body == ''", &["`request.body` is unknown", "method, path, address"]),
        ("identity == identity", &["`identity` is used without a field", "employee_id"]),
        ("identity.name.first == ''", &["`identity.name` is a string", "no field `first`"]),
        ("identity.roles.exists(r, r.x == '')", &["`r` is a string", "no field `x`"]),
        ("identity.roles.exists(r, true) && r == ''", &["`r` is unknown"]),
        ("identity['name'] == ''", &["operator `[]`", "&&"]),
        ("identity.roles[0] == ''", &["operator `[]`"]),
        ("identity.name + 'x' == ''", &["operator `+`"]),
        ("1 + 1 == 2", &["operator `+`"]),
        ("2 * 3 == 6", &["operator `*`"]),
        ("7 % 3 == 1", &["operator `%`"]),
        ("-size(identity.name) == 1", &["operator `-`"]),
        ("identity.?name == ''", &["line 1, column"]),
        ("identity.name.lowerAscii() == ''", &["`lowerAscii` is not a function", "startsWith", "matches"]),
        ("string(1) == '1'", &["`string` is not a function"]),
        ("timestamp('x') == timestamp('y')", &["`timestamp` is not a function"]),
        ("_now() == 1", &["`_now` is not a function"]),
        ("identity.roles.map(r, r) == []", &["`map` is not a function"]),
        ("identity.roles.filter(r, true) == []", &["`filter` is not a function"]),
        ("identity.roles.exists_one(r, true)", &["`exists_one` is not a function"]),
        ("identity.roles.exists('r', true)", &["`exists` is called wrongly", "role"]),
        ("identity.roles.exists(request, true)", &["`request` cannot name"]),
        ("identity.name.exists(c, true)", &["`identity.name` is a string", "a list"]),
        ("contains(identity.name, 'x')", &["`contains` is called wrongly", "string.contains(string)"]),
        ("size() == 1", &["`size` is called wrongly"]),
        ("size(true) == 1", &["`true` is a boolean", "a string or a list"]),
        ("has(identity)", &["`has` is called wrongly", "has(identity.field)"]),
        ("has(identity.nothing)", &["`identity.nothing` is unknown"]),
        ("identity.name", &["`identity.name` is a string", "must be a boolean"]),
        ("size(identity.name)", &["`size(...)` is a number", "must be a boolean"]),
        ("['a']", &["is a list", "must be a boolean"]),
        ("identity.name && true", &["`identity.name` is a string", "a boolean"]),
        ("true ? 'a' : 'b'", &["`\"a\"` is a string", "a boolean"]),
        ("identity.name == 1", &["`identity.name` is a string", "`1` is a number", "two strings"]),
        ("identity.roles == ['admin']", &["is a list", "`in`"]),
        ("true < false", &["a boolean", "two numbers"]),
        ("1 in [1]", &["a number", "a string"]),
        ("'a' in [1]", &["`1` is a number", "a string"]),
        ("'a' in 'abc'", &["`\"abc\"` is a string", "a list"]),
        ("identity.name == null", &["null", "strings"]),
        ("1.5 == 1.5", &["floats"]),
        ("1u == 1u", &["unsigned"]),
        ("b'a' == b'a'", &["bytes"]),
        ("99999999999999999999 == 1", &["line 1", "invalid int literal"]),
        ("{'a': 'b'} == {}", &["maps"]),
        ("identity.Name{}", &["messages"]),
        ("identity.name.matches('[')", &["`[` is not a valid pattern", "unclosed"]),
        ("identity.name.matches(r'(a)\\1')", &["not a valid pattern", "backreferences"]),
        ("identity.name.matches(request.path)", &["`request.path`", "literal"]),
        ("identity.roles.exists(r, identity.name.matches(r))", &["`r`", "literal"]),
        ("identity.name.matches('(a{100}){100}{100}')", &["too large", "1048576"]),
        ("identity.name.matches('[01]*1[01]{18}$')", &["too large", "1048576"]),
        (r"identity.name.matches(r'\bx')", &["word boundary", r"write `(?-u:\b)`"]),
        (
            "identity.roles.all(a, identity.roles.all(b, a == b))  && identity.roles.all(a, 'x' in identity.roles)",
            &["steps", "10000 are allowed"],
        ),
        ("identity.roles.all(a, identity.roles.all(b, identity.roles.all(c, true)))", &["steps", "10000 are allowed"]),
        ("identity.roles.exists(r, request.path.contains(r))", &["steps", "10000 are allowed"]),
        (&long, &["1028 bytes", "1024 are allowed"]),
        (&parentheses, &["nested too deep", "32"]),
        (&choices, &["nested too deep", "32"]),
        (&comparisons, &["nested too deep", "32"]),
    ];
    for (text, words) in table {
        let error = compile(text).expect_err(text);
        for word in *words {
            assert!(error.contains(word), "{text}: `{word}` is not in: {error}");
        }
        assert!(!error.contains('\n'), "{text}: not one line: {error}");
    }
}

#[test]
fn variables_beyond_the_limits_are_an_error() {
    let longest = "x".repeat(LONGEST_PATH + 1);
    let roles = vec!["r"; MOST_ROLES + 1];
    let long_role = [&longest[..=LONGEST_ROLE]];
    let many = IdentityVariables { roles: &roles, ..ALICE };
    let long = IdentityVariables { roles: &long_role, name: &longest[..=LONGEST_FIELD], ..ALICE };
    let table: &[(&str, &str, &IdentityVariables<'_>, &str, &str)] = &[
        ("a role too many", "'x' in identity.roles", &many, "/", "65 roles"),
        ("only the count is read", "has(identity.roles)", &many, "/", "65 roles"),
        ("a long role", "'x' in identity.roles", &long, "/", "65 bytes"),
        ("a long name", "identity.name == ''", &long, "/", "identity.name has 257 bytes"),
        ("a long path", "request.path != ''", &ALICE, &longest, "request.path has 8193 bytes"),
    ];
    for (case, text, identity, path, words) in table {
        let condition = compile(text).unwrap();
        let error = condition.holds(Some(identity), &RequestVariables { path, ..request() }).expect_err(case);
        assert!(error.contains(words), "{case}: {error}");
    }
    let other = compile("identity.department == 'IT'").unwrap();
    let request = RequestVariables { path: &longest, ..request() };
    assert_eq!(other.holds(Some(&many), &request), Ok(true), "a field that is not read is not checked");
}

#[test]
fn an_ipv4_mapped_address_is_compared_as_ipv4() {
    let condition = compile("request.address == '10.1.2.3'").unwrap();
    let mapped = RequestVariables { address: "::ffff:10.1.2.3".parse().unwrap(), ..request() };
    assert_eq!(condition.holds(None, &mapped), Ok(true));
}

#[test]
fn deep_nesting_is_refused_without_a_stack_overflow() {
    for (start, middle, end) in [
        ("true", "==a", ""),
        ("a", ".b", ""),
        ("a", "-a", ""),
        ("a", "[0]", ""),
        ("a", ".b()", ""),
        ("", "(", ""),
        ("", "[", ""),
        ("", "{", ""),
        ("", "a(", ""),
        ("", "a.b(", ""),
        ("", "a?a:", "a"),
        ("a", "?a", ""),
        ("", "a{b:", ""),
        ("", "!", "true == 1"),
        ("", "-", "1"),
        ("", "!(", "true"),
        ("", "-!", "true"),
        ("a", " in a", ""),
        ("a", "&&a", ""),
        ("a.matches('", "(", "')"),
        ("a.matches('", "(?:a", "')"),
        ("request.path.matches('", "(a*)*", "')=='1'"),
    ] {
        let repeats = (LONGEST_TEXT - start.len() - end.len()) / middle.len();
        let text = format!("{start}{}{end}", middle.repeat(repeats));
        assert!(compile(&text).is_err(), "{text:.40}");
    }
}

/// The condition that repeats `one` as often as the cost limit allows, and its cost.
fn most_expensive(around: (&str, &str), one: &str) -> (Condition, u64) {
    let conditions =
        (1..).map_while(|times| compile(&format!("{}{}{}", around.0, vec![one; times].join("||"), around.1)).ok());
    let condition = conditions.last().unwrap_or_else(|| panic!("{one} is never accepted"));
    let cost = condition.test.cost();
    (condition, cost)
}

#[test]
fn the_most_expensive_conditions_take_milliseconds() {
    let role = "a".repeat(LONGEST_ROLE);
    let roles = vec![role.as_str(); MOST_ROLES];
    let name = format!("{}b", "a".repeat(LONGEST_FIELD - 1));
    let identity = IdentityVariables { roles: &roles, name: &name, ..ALICE };
    // The second path drives a DFA through all of its states.
    let bits = (0..LONGEST_PATH as u64).map(|index| if index.wrapping_mul(index) % 8_191 % 7 < 3 { '0' } else { '1' });
    let paths = ["a".repeat(LONGEST_PATH), bits.collect()];
    let table: &[((&str, &str), &str)] = &[
        (("", ""), "request.path.matches('1[01]{12}x')"),
        (("", ""), r"request.path.matches(r'\w$x')"),
        (("", ""), "request.path.contains('aaaaaab')"),
        (("", ""), "request.path.contains(identity.name)"),
        (("", ""), "size(request.path)==1"),
        (("", ""), "request.path<request.path"),
        (("", ""), "identity.name in identity.roles"),
        (("", ""), "'a'=='b'"),
        (("identity.roles.exists(r,", ")"), "r.contains('aab')"),
        (("identity.roles.exists(r,", ")"), "r.matches('b$')"),
        (("identity.roles.exists(r,", ")"), "r=='1'"),
        (("identity.roles.exists(r,", ")"), "'b' in identity.roles"),
        (("identity.roles.exists(a,identity.roles.exists(b,", "))"), "false"),
    ];
    let mut highest = 0;
    for (around, one) in table {
        let (condition, cost) = most_expensive(*around, one);
        highest = highest.max(cost);
        for path in &paths {
            let request = RequestVariables { path, ..request() };
            // The fastest of 20 runs, because the machine may be busy: 0.25 ms in a release build, 0.7 ms in a debug
            // build. Without the limits it would be far above 10 ms.
            let times = (0..20).map(|_| {
                let start = Instant::now();
                assert_eq!(condition.holds(Some(&identity), &request), Ok(false), "{one}");
                start.elapsed()
            });
            let time = times.min().unwrap_or_default();
            assert!(time < Duration::from_millis(10), "{time:?} for {one}");
        }
    }
    assert!(highest > HIGHEST_COST * 9 / 10, "the limit was not reached: {highest}");
}

fn conditions() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        Just("identity.name"),
        Just("identity.department"),
        Just("identity.current_role"),
        Just("request.path"),
        Just("request.address"),
        Just("'IT'"),
        Just("'Zo\\u00eb'"),
        Just("''"),
        Just("r"),
    ]
    .boxed();
    let list = prop_oneof![
        Just("identity.roles".to_owned()),
        prop::collection::vec(text.clone(), 0..4).prop_map(|texts| format!("[{}]", texts.join(", "))),
    ]
    .boxed();
    let number = prop_oneof![
        (-2i64..5).prop_map(|number| number.to_string()),
        text.clone().prop_map(|text| format!("size({text})")),
        list.clone().prop_map(|list| format!("{list}.size()")),
    ]
    .boxed();
    let relation = prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")].boxed();
    let pattern =
        prop_oneof![Just("^a.*n$"), Just("[A-Z]+"), Just(r"\\d$"), Just(r"\\w\\W"), Just("(?i)it|ë"), Just("^.{3}$")];
    let function = prop_oneof![Just("contains"), Just("startsWith"), Just("endsWith")];
    let test = prop_oneof![
        any::<bool>().prop_map(|truth| truth.to_string()),
        (text.clone(), relation.clone(), text.clone()).prop_map(|(a, relation, b)| format!("{a} {relation} {b}")),
        (number.clone(), relation, number).prop_map(|(a, relation, b)| format!("{a} {relation} {b}")),
        (text.clone(), list.clone()).prop_map(|(text, list)| format!("{text} in {list}")),
        (text.clone(), function, text.clone()).prop_map(|(a, function, b)| format!("{a}.{function}({b})")),
        (text, pattern).prop_map(|(text, pattern)| format!("{text}.matches('{pattern}')")),
    ];
    test.prop_recursive(4, 24, 3, move |test| {
        prop_oneof![
            test.clone().prop_map(|a| format!("!({a})")),
            (test.clone(), test.clone()).prop_map(|(a, b)| format!("{a} && {b}")),
            (test.clone(), test.clone()).prop_map(|(a, b)| format!("{a} || {b}")),
            (test.clone(), test.clone()).prop_map(|(a, b)| format!("({a}) == ({b})")),
            (test.clone(), test.clone(), test.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (list.clone(), test.clone()).prop_map(|(list, a)| format!("{list}.exists(r, {a})")),
            (list.clone(), test).prop_map(|(list, a)| format!("{list}.all(r, {a})")),
        ]
    })
    .prop_map(|test| format!("['IT'].exists(r, {test})"))
}

/// The value that the interpreter of the `cel` crate computes.
fn interpreted(text: &str, identity: &IdentityVariables<'_>, request: &RequestVariables<'_>) -> cel::Value {
    let mut fields: HashMap<&str, cel::Value> = Field::IDENTITY
        .iter()
        .map(|(name, field)| {
            let variables = Variables { identity: *identity, method: "", path: "", address: "" };
            (*name, field.read(&variables).into())
        })
        .collect();
    fields.insert("roles", identity.roles.to_vec().into());
    let address = request.address.to_string();
    let mut context = Context::default();
    context.add_variable_from_value("identity", fields);
    context.add_variable_from_value(
        "request",
        HashMap::from([("method", request.method), ("path", request.path), ("address", &address)]),
    );
    Program::compile(text).unwrap().execute(&context).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conditions_agree_with_the_interpreter_of_the_cel_crate(
        text in conditions(),
        name in "[a-zë]{0,3}|Zoë",
        department in "IT|HR|",
        roles in prop::collection::vec("IT|admin|agent|Zoë", 0..3),
    ) {
        let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
        let identity = IdentityVariables { name: &name, department: &department, roles: &roles, ..ALICE };
        match compile(&text) {
            Ok(condition) => {
                let holds = condition.holds(Some(&identity), &request());
                prop_assert_eq!(holds.map(cel::Value::Bool), Ok(interpreted(&text, &identity, &request())), "{}", text);
            }
            Err(error) => prop_assert!(error.contains("steps") || error.contains("1024"), "{}: {}", text, error),
        }
    }

    #[test]
    fn compile_never_panics_on_any_text(text in any::<String>()) {
        let _ = compile(&text);
    }

    #[test]
    fn compile_never_panics_on_any_sequence_of_tokens(tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..24)) {
        for separator in ["", " "] {
            if let Ok(condition) = compile(&tokens.join(separator)) {
                prop_assert!(condition.holds(Some(&ALICE), &request()).is_ok());
            }
        }
    }

    #[test]
    fn no_variables_make_a_condition_panic(text in conditions(), value in any::<String>(), path in any::<String>()) {
        let roles = [value.as_str(), "a"];
        let identity = IdentityVariables { name: &value, department: &value, roles: &roles, current_role: &value, ..ALICE };
        if let Ok(condition) = compile(&text) {
            let _ = condition.holds(Some(&identity), &RequestVariables { path: &path, ..request() });
            prop_assert!(condition.holds(None, &request()).is_ok());
        }
    }
}

const TOKENS: &[&str] = &[
    "identity",
    "request",
    ".",
    "name",
    "roles",
    "exists",
    "all",
    "has",
    "size",
    "matches",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    "!",
    "-",
    "+",
    "==",
    "!=",
    "<",
    "&&",
    "||",
    "in",
    "true",
    "null",
    "'a'",
    "\"",
    "'",
    "'''",
    "r'",
    "b'",
    "\\",
    "\\x",
    "\\u12",
    "'\\ud800'",
    "'\\400'",
    "`",
    "1",
    "0x",
    "1e",
    "9223372036854775808",
    "1u",
    ".5",
    "@",
    "#",
    "//",
    "\n",
    "\r",
    "\0",
    "ë",
    "😀",
    "identity.name",
    "request.path",
    "identity.roles",
    "r",
];

#[test]
fn conditions_are_send_and_sync() {
    fn shared<T: Send + Sync + fmt::Debug>() {}
    shared::<Condition>();
    let condition = compile("true").unwrap();
    assert_eq!(format!("{condition:?}"), "Condition(\"true\")");
}

//! Setting switches from JSON.

use serde_json::Map;

use super::*;
use crate::demo::switch_patch::SWITCHES;

fn patch(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn every_switch_has_a_description() {
    let written = serde_json::to_value(Switches::default()).unwrap();
    let mut names: Vec<&str> = SWITCHES.iter().map(|info| info.name).collect();
    names.sort_unstable();
    let mut fields: Vec<&String> = written.as_object().unwrap().keys().collect();
    fields.sort_unstable();
    assert_eq!(names, fields);
}

#[test]
fn every_switch_can_be_set_and_reset() {
    let table = [
        ("token_lifetime_seconds", json!(60)),
        ("rotate_tokens", json!(true)),
        ("stale_token_errcode", json!(42001)),
        ("code_lifetime_seconds", json!(0)),
        ("busy", json!({ "*": 3, "/cgi-bin/user/get": "all" })),
        ("bad_gateway", json!({ "/connect/oauth2/authorize": "all" })),
        ("slow_milliseconds", json!({ "*": 300, "/wwlogin/sso/login": 20 })),
        ("frequency_limit", json!(5)),
        ("denied_addresses", json!(["127.0.0.1/32", "10.0.0.0/8", "::1/128"])),
        ("trusted_domains", json!({ "1000002": ["desk.example:8080"] })),
        ("visible_range", json!({ "1000003": ["u1001"] })),
        ("members", json!({ "u1001": "not_activated", "x8001": "active" })),
        ("client_only", json!(true)),
        ("deny_at_scan", json!(true)),
        ("duplicate_callback", json!(true)),
        ("return_appid", json!(true)),
        ("old_application", json!(true)),
    ];
    assert_eq!(table.len(), SWITCHES.len());
    for (name, value) in table {
        let set = Switches::default().merged(&patch(json!({ name: value }))).unwrap();
        assert_eq!(serde_json::to_value(&set).unwrap()[name], value, "{name}");
        assert_ne!(set, Switches::default(), "{name}");
        assert_eq!(set.merged(&patch(json!({ name: null }))).unwrap(), Switches::default(), "{name}");
    }
}

#[test]
fn a_patch_merges_entry_by_entry() {
    let first = Switches::default().merged(&patch(json!({ "busy": { "*": 1, "/cgi-bin/user/get": 2 } }))).unwrap();
    let second = first.merged(&patch(json!({ "busy": { "*": null, "/cgi-bin/gettoken": 3 } }))).unwrap();
    assert_eq!(
        serde_json::to_value(second).unwrap()["busy"],
        json!({ "/cgi-bin/gettoken": 3, "/cgi-bin/user/get": 2 })
    );
}

#[test]
fn an_invalid_value_is_reported_with_the_allowed_ones() {
    let table = [
        ("no such switch", json!({ "bussy": 1 }), "there is no such switch", "busy"),
        ("no number", json!({ "token_lifetime_seconds": "1h" }), "invalid type", "a whole number of seconds"),
        ("below zero", json!({ "code_lifetime_seconds": -1 }), "invalid value", "a whole number of seconds"),
        ("no switch position", json!({ "rotate_tokens": "yes" }), "invalid type", "true or false"),
        ("another number", json!({ "stale_token_errcode": 40001 }), "neither 40014 nor 42001", "40014 or 42001"),
        ("no count", json!({ "busy": { "*": "often" } }), "neither a number", "\"all\""),
        ("no path", json!({ "busy": { "/x": 1 } }), "/x is not known", "a path"),
        (
            "a page that is never busy",
            json!({ "busy": { "/connect/oauth2/authorize": 1 } }),
            "is not known",
            "server API",
        ),
        ("no path to slow", json!({ "slow_milliseconds": { "/x": 1 } }), "/x is not known", "milliseconds"),
        ("no limit", json!({ "frequency_limit": 1.5 }), "invalid type", "null or a whole number"),
        ("no address", json!({ "denied_addresses": ["localhost"] }), "\"localhost\" is not an address", "networks"),
        ("no application", json!({ "trusted_domains": { "1": [] } }), "1 is not known", "agentid"),
        (
            "no domain",
            json!({ "trusted_domains": { "1000002": ["https://desk.example/"] } }),
            "is not a host",
            "a list of hosts",
        ),
        ("unknown member visible", json!({ "visible_range": { "1000002": ["z9"] } }), "z9 is not known", "userids"),
        ("unknown member", json!({ "members": { "z9": "active" } }), "z9 is not known", "a userid"),
        ("no kind", json!({ "members": { "u1001": "asleep" } }), "unknown variant `asleep`", "not_activated"),
    ];
    for (case, change, why, allowed) in table {
        let faults = Switches::default().merged(&patch(change.clone())).unwrap_err();
        assert_eq!(faults.len(), 1, "{case}");
        assert_eq!(Some(&faults[0].switch), change.as_object().unwrap().keys().next(), "{case}");
        assert!(faults[0].why.contains(why), "{case}: {}", faults[0].why);
        assert!(faults[0].allowed.contains(allowed), "{case}: {}", faults[0].allowed);
    }
    let faults = Switches::default().merged(&patch(json!({ "x": 1, "busy": 1, "client_only": true }))).unwrap_err();
    assert_eq!(faults.len(), 2, "all at once");
}

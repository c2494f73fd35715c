//! Sets switches from JSON by a merge patch (RFC 7396), where `null` restores a default, and describes each
//! switch for the control page and for error messages.

use serde::Serialize;
use serde_json::{Map, Value};

use super::members::{Application, members};
use super::path;
use super::switches::{ANY, Switches};

/// The form field that the control page shows for a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchInput {
    Toggle,
    Number,
    /// One of these JSON values.
    OneOf(&'static [&'static str]),
    /// Any JSON value; the text is an example.
    Json(&'static str),
}

/// The description of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchInfo {
    /// The key in JSON.
    pub name: &'static str,
    pub effect: &'static str,
    pub allowed: &'static str,
    pub input: SwitchInput,
}

impl SwitchInfo {
    fn find(name: &str) -> Option<&'static SwitchInfo> {
        SWITCHES.iter().find(|info| info.name == name)
    }
}

const fn info(name: &'static str, effect: &'static str, allowed: &'static str, input: SwitchInput) -> SwitchInfo {
    SwitchInfo { name, effect, allowed, input }
}

const TOGGLE: &str = "true or false";
const SECONDS: &str = "a whole number of seconds, 0 or more";
const CALLS: &str = "an object: a path of the server API, or \"*\" for all of it, to a number of calls or \"all\"";

/// Every switch, in the order of the struct.
pub static SWITCHES: [SwitchInfo; 17] = [
    info("token_lifetime_seconds", "Lifetime of a new application token.", SECONDS, SwitchInput::Number),
    info(
        "rotate_tokens",
        "Each token fetch issues a new token and revokes the previous one.",
        TOGGLE,
        SwitchInput::Toggle,
    ),
    info(
        "stale_token_errcode",
        "Error code for stale tokens. Unset: 42001 for an expired one, 40014 for a revoked one.",
        "null, 40014 or 42001",
        SwitchInput::OneOf(&["null", "40014", "42001"]),
    ),
    info("code_lifetime_seconds", "Lifetime of a new code. 0 issues expired codes.", SECONDS, SwitchInput::Number),
    info("busy", "The next calls fail with -1.", CALLS, SwitchInput::Json(r#"{"/cgi-bin/user/get": 2}"#)),
    info(
        "bad_gateway",
        "The next calls fail with a 502 that is not JSON. Accepts paths of pages too.",
        CALLS,
        SwitchInput::Json(r#"{"*": "all"}"#),
    ),
    info(
        "slow_milliseconds",
        "Delays responses. Accepts paths of pages too.",
        "an object: a path, or \"*\" for the whole server API, to a whole number of milliseconds",
        SwitchInput::Json(r#"{"*": 300, "/cgi-bin/gettoken": 2000}"#),
    ),
    info(
        "frequency_limit",
        "Calls per minute for each path of the server API. The call above the limit blocks the path with 45009 for a minute.",
        "null or a whole number, 0 or more",
        SwitchInput::Json("5"),
    ),
    info(
        "denied_addresses",
        "Client addresses that are rejected with 60020. They can still fetch tokens.",
        "a list of IP addresses and networks",
        SwitchInput::Json(r#"["127.0.0.1", "10.0.0.0/8"]"#),
    ),
    info(
        "trusted_domains",
        "Domains that each application may redirect to. Empty: not checked. Otherwise an application without an entry trusts none.",
        "an object: an agentid (1000002 or 1000003) to a list of hosts, with the port if it is not 80 or 443",
        SwitchInput::Json(r#"{"1000002": ["127.0.0.1:8080"]}"#),
    ),
    info(
        "visible_range",
        "Members that each application can see. Empty: all of them. Otherwise an application without an entry sees none.",
        "an object: an agentid (1000002 or 1000003) to a list of userids",
        SwitchInput::Json(r#"{"1000002": ["u1001", "a2001"]}"#),
    ),
    info(
        "members",
        "Changes what kind of member a person is.",
        "an object: a userid to active, disabled, not_activated, left, deleted, linked, outsider or customer",
        SwitchInput::Json(r#"{"u1001": "disabled"}"#),
    ),
    info(
        "client_only",
        "The authorize page opens only in the WeCom client, as on the real platform.",
        TOGGLE,
        SwitchInput::Toggle,
    ),
    info("deny_at_scan", "Every scan is declined.", TOGGLE, SwitchInput::Toggle),
    info(
        "duplicate_callback",
        "The browser calls the callback twice with the same code and cookies, as WeCom clients are known to do.",
        TOGGLE,
        SwitchInput::Toggle,
    ),
    info("return_appid", "The callback carries appid beside code and state.", TOGGLE, SwitchInput::Toggle),
    info(
        "old_application",
        "The application predates June 2022: profiles include avatar, mobile number and email.",
        TOGGLE,
        SwitchInput::Toggle,
    ),
];

/// A value that was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SwitchFault {
    /// The name as it was sent.
    pub switch: String,
    pub why: String,
    pub allowed: String,
}

impl Switches {
    /// Applies a merge patch. All of it is applied, or none and every fault is returned.
    pub(super) fn merged(&self, patch: &Map<String, Value>) -> Result<Switches, Vec<SwitchFault>> {
        let mut switches = self.clone();
        let mut faults = Vec::new();
        for (name, change) in patch {
            match switches.with_one(name, change) {
                Ok(changed) => switches = changed,
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(switches) } else { Err(faults) }
    }

    fn with_one(&self, name: &str, change: &Value) -> Result<Switches, SwitchFault> {
        let Some(info) = SwitchInfo::find(name) else {
            let names: Vec<&str> = SWITCHES.iter().map(|info| info.name).collect();
            let why = "there is no such switch".to_owned();
            return Err(SwitchFault { switch: name.to_owned(), why, allowed: names.join(", ") });
        };
        let fault = |why: String| SwitchFault { switch: name.to_owned(), why, allowed: info.allowed.to_owned() };
        let mut json = serde_json::to_value(self).map_err(|error| fault(error.to_string()))?;
        merge(&mut json, &Value::Object([(name.to_owned(), change.clone())].into_iter().collect()));
        let changed: Switches = serde_json::from_value(json).map_err(|error| fault(error.to_string()))?;
        match changed.find_invalid() {
            Some(why) => Err(fault(why)),
            None => Ok(changed),
        }
    }

    /// Describes the first unknown path, application or member, or the first malformed domain.
    fn find_invalid(&self) -> Option<String> {
        let no_api = |key: &&String| *key != ANY && !path::API.contains(&key.as_str());
        let no_path = |key: &&String| no_api(key) && !path::PAGES.contains(&key.as_str());
        let no_application = |key: &&String| Application::find(key).is_none();
        let no_member = |key: &&String| !members().iter().any(|member| member.userid == **key);
        let unknown = self.busy.keys().find(no_api);
        let unknown = unknown.or_else(|| self.bad_gateway.keys().chain(self.slow.keys()).find(no_path));
        let unknown =
            unknown.or_else(|| self.trusted_domains.keys().chain(self.visible_range.keys()).find(no_application));
        let unknown =
            unknown.or_else(|| self.visible_range.values().flatten().chain(self.members.keys()).find(no_member));
        let malformed = |text: &&String| text.is_empty() || text.contains(['/', '*', ' ']);
        let no_domain = || self.trusted_domains.values().flatten().find(malformed);
        unknown
            .map(|name| format!("{name} is not known"))
            .or_else(|| no_domain().map(|text| format!("\"{text}\" is not a host with an optional port")))
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

//! What people are told about each switch.

/// How a switch is set on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// On or off.
    Toggle,
    /// A number that is always there.
    Number,
    /// One of these JSON values.
    OneOf(&'static [&'static str]),
    /// A JSON value, with an example.
    Json(&'static str),
}

/// One switch, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its name in JSON.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// What can be set.
    pub allowed: &'static str,
    /// How the page asks for it.
    pub input: Input,
}

impl About {
    /// The switch of this name.
    pub fn find(name: &str) -> Option<&'static About> {
        ABOUT.iter().find(|about| about.name == name)
    }
}

const fn about(name: &'static str, what: &'static str, allowed: &'static str, input: Input) -> About {
    About { name, what, allowed, input }
}

const TOGGLE: &str = "true or false";
const SECONDS: &str = "a whole number of seconds, 0 or more";
const CALLS: &str = "an object: a path of the server API, or \"*\" for all of it, to a number of calls or \"all\"";

/// Every switch, in the order of the struct.
pub static ABOUT: [About; 17] = [
    about("token_lifetime_seconds", "How long a new application token lives.", SECONDS, Input::Number),
    about("rotate_tokens", "Each fetch gives a new token and ends the one before.", TOGGLE, Input::Toggle),
    about(
        "stale_token_errcode",
        "What a stale token is refused with. Unset: 42001 if it expired, 40014 if it was withdrawn.",
        "null, 40014 or 42001",
        Input::OneOf(&["null", "40014", "42001"]),
    ),
    about("code_lifetime_seconds", "How long a new code lives. 0: it arrives expired.", SECONDS, Input::Number),
    about("busy", "The next calls are answered with -1.", CALLS, Input::Json(r#"{"/cgi-bin/user/get": 2}"#)),
    about(
        "bad_gateway",
        "The next calls are answered with a 502 that is not JSON. A page's path can be named too.",
        CALLS,
        Input::Json(r#"{"*": "all"}"#),
    ),
    about(
        "slow_milliseconds",
        "Answers are held back. A page's path can be named too.",
        "an object: a path, or \"*\" for the whole server API, to a whole number of milliseconds",
        Input::Json(r#"{"*": 300, "/cgi-bin/gettoken": 2000}"#),
    ),
    about(
        "frequency_limit",
        "How often each path of the server API may be called in a minute; beyond, 45009 for a minute.",
        "null or a whole number, 0 or more",
        Input::Json("5"),
    ),
    about(
        "denied_addresses",
        "Who is refused with 60020 (tokens are still given to them).",
        "a list of IP addresses and networks",
        Input::Json(r#"["127.0.0.1", "10.0.0.0/8"]"#),
    ),
    about(
        "trusted_domains",
        "Where each application returns to. Empty: not checked; otherwise an application that is not named trusts nothing.",
        "an object: an agentid (1000002 or 1000003) to a list of hosts, with the port if it is not 80 or 443",
        Input::Json(r#"{"1000002": ["127.0.0.1:8080"]}"#),
    ),
    about(
        "visible_range",
        "Whom each application sees. Empty: everybody; otherwise an application that is not named sees nobody.",
        "an object: an agentid (1000002 or 1000003) to a list of userids",
        Input::Json(r#"{"1000002": ["u1001", "a2001"]}"#),
    ),
    about(
        "members",
        "What people are, instead of what they were made as.",
        "an object: a userid to active, disabled, not_activated, linked, outsider or customer",
        Input::Json(r#"{"u1001": "disabled"}"#),
    ),
    about(
        "client_only",
        "The authorize page wants the platform's own client, as the real one does.",
        TOGGLE,
        Input::Toggle,
    ),
    about("deny_at_scan", "Whoever scans refuses.", TOGGLE, Input::Toggle),
    about(
        "duplicate_callback",
        "The browser calls the callback twice with the same code and cookies, as the platform's clients are known to do.",
        TOGGLE,
        Input::Toggle,
    ),
    about("return_appid", "appid comes back beside code and state.", TOGGLE, Input::Toggle),
    about(
        "old_application",
        "The application is from before June 2022: profiles have a picture, telephone and mail.",
        TOGGLE,
        Input::Toggle,
    ),
];

//! The page for people.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::super::ledger::Ledger;
use super::super::pages::{self, escape};
use super::super::switches::{ABOUT, About, Fault, Input, Switches};
use super::super::{Shared, path};

const PAGE: &str = include_str!("../pages/control.html");

/// `GET /simulator`
pub async fn page(State(shared): State<Shared>) -> Response {
    render(&shared.ledger(), &[])
}

/// The page, with what could not be set.
pub fn render(ledger: &Ledger, faults: &[Fault]) -> Response {
    let (current, default) = (super::state(&ledger.switches), super::state(&Switches::default()));
    let row = |about: &About| switch(about, &current[about.name], &default[about.name]);
    let calls = path::API.iter().chain(&path::PAGES).map(|path| (path, ledger.calls.of(path)));
    let calls = calls.filter(|(_, calls)| *calls > 0);
    let values = [
        ("faults", faults.iter().map(fault).collect()),
        ("switches", ABOUT.iter().map(row).collect()),
        ("now", ledger.now().iso8601()),
        ("calls", calls.map(|(path, calls)| format!("<tr><td>{path}</td><td>{calls}</td></tr>\n")).collect()),
        ("origin", escape(&ledger.origin)),
    ];
    pages::own(if faults.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST }, PAGE, &values)
}

fn fault(fault: &Fault) -> String {
    let parts = [&fault.switch, &fault.why, &fault.allowed].map(|text| escape(text));
    let [switch, why, allowed] = &parts;
    format!("<p role=\"alert\"><strong>{switch}</strong>: {why}. Allowed: {allowed}.</p>\n")
}

/// One switch as a form of its own, so that the page works without script.
fn switch(about: &About, current: &Value, default: &Value) -> String {
    let name = about.name;
    let text = escape(&current.to_string());
    let input = match about.input {
        Input::Toggle => select(name, &["true", "false"], current),
        Input::OneOf(values) => select(name, values, current),
        Input::Number => {
            format!("<input id=\"{name}\" name=\"value\" type=\"number\" min=\"0\" required value=\"{text}\">")
        }
        Input::Json(example) => format!(
            "<input id=\"{name}\" name=\"value\" autocomplete=\"off\" spellcheck=\"false\" value=\"{text}\" \
             placeholder=\"{}\">",
            escape(example)
        ),
    };
    let example = match about.input {
        Input::Json(example) => format!(", such as <code>{}</code>", escape(example)),
        Input::Toggle | Input::Number | Input::OneOf(_) => String::new(),
    };
    format!(
        "<form class=\"switch{set}\" method=\"post\" action=\"/simulator/switches\"><label for=\"{name}\"><code>{name}</code></label>\
         <input type=\"hidden\" name=\"name\" value=\"{name}\">{input}<button aria-label=\"Set {name}\">Set</button>\
         <small>{what} Value: {allowed}{example}.</small></form>\n",
        set = if current == default { "" } else { " set" },
        what = escape(about.what),
        allowed = escape(about.allowed),
    )
}

fn select(name: &str, values: &[&str], current: &Value) -> String {
    let current = current.to_string();
    let option = |value: &&str| {
        let selected = if *value == current { " selected" } else { "" };
        format!("<option{selected}>{value}</option>")
    };
    format!("<select id=\"{name}\" name=\"value\">{}</select>", values.iter().map(option).collect::<String>())
}

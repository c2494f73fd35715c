//! The description that the gateway gives of itself, and whether an answer is one that it describes.

use std::collections::BTreeSet;
use std::sync::Mutex;

use deskgate::endpoints::OwnRoute;
use serde_json::{Map, Value, json};

use super::{Answer, Gateway};

/// Headers that belong to the transport or to every answer, and need no description.
const UNDESCRIBED: [&str; 6] =
    ["content-type", "content-length", "date", "connection", "x-content-type-options", "referrer-policy"];

/// Schemas that others put members into: only these say which are all.
const ENVELOPES: [&str; 2] = ["Success", "Refusal"];

/// `GET /api/auth/openapi.json`, and what came of each operation so far.
pub struct Description {
    document: Value,
    /// The same schemas, but members that they do not name are faults: here nothing may be left out.
    closed: Value,
    seen: Mutex<BTreeSet<Seen>>,
}

/// One kind of answer of one operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// `GET /version`
    pub operation: String,
    /// The HTTP status.
    pub status: String,
    /// The envelope's code, or 0 where there is none.
    pub code: u64,
}

impl Description {
    /// As this gateway gives it.
    pub async fn of(desk: &Gateway) -> Description {
        let document = desk.anyone().get("/api/auth/openapi.json").await.expect_status(200).json();
        let mut closed = json!({ "schemas": document["components"]["schemas"] });
        for (name, schema) in closed["schemas"].as_object_mut().expect("schemas") {
            if !ENVELOPES.contains(&name.as_str()) {
                close(schema);
            }
        }
        Description { document, closed, seen: Mutex::default() }
    }

    /// All of it.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// What a `$ref` stands for; anything else is itself.
    #[track_caller]
    pub fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref").and_then(Value::as_str) {
            None => value,
            Some(reference) => {
                let place = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads elsewhere"));
                self.document.pointer(place).unwrap_or_else(|| panic!("{reference} leads nowhere"))
            }
        }
    }

    /// The operation of a row.
    #[track_caller]
    pub fn operation(&self, row: &OwnRoute) -> &Value {
        let operation = &self.document["paths"][row.path][row.method.to_ascii_lowercase()];
        assert!(operation.is_object(), "{} {} is not described", row.method, row.path);
        operation
    }

    /// Whether an operation says that it can answer so.
    pub fn lists(&self, row: &OwnRoute, status: &str) -> bool {
        self.operation(row)["responses"].get(status).is_some()
    }

    /// Every kind of answer that is described.
    pub fn described(&self) -> BTreeSet<Seen> {
        let mut described = BTreeSet::new();
        for (path, item) in self.document["paths"].as_object().expect("paths") {
            let operations = item.as_object().expect("operations").iter().filter(|(key, _)| *key != "parameters");
            for (method, operation) in operations {
                let operation_name = format!("{} {path}", method.to_ascii_uppercase());
                for (status, response) in operation["responses"].as_object().expect("responses") {
                    let content = self.resolved(response)["content"].as_object();
                    // An answer without a body has no code.
                    let codes = content.map_or_else(
                        || BTreeSet::from([0]),
                        |content| content.values().flat_map(|content| codes(&content["schema"])).collect(),
                    );
                    for code in codes {
                        described.insert(Seen { operation: operation_name.clone(), status: status.clone(), code });
                    }
                }
            }
        }
        described
    }

    /// What came so far.
    pub fn seen(&self) -> BTreeSet<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Counts what came of another gateway as well.
    pub fn add(&self, other: &Description) {
        self.seen.lock().unwrap().extend(other.seen());
    }

    /// Fails unless this is an answer that the description has for this row: status, kind, headers and body.
    #[track_caller]
    pub fn check(&self, row: &OwnRoute, answer: &Answer) {
        let status = answer.status.to_string();
        // No operation has a method that it does not have: this one stands for all paths.
        let other_method = json!({ "$ref": "#/components/responses/MethodNotAllowed" });
        let listed = self.operation(row)["responses"].get(&status);
        let listed = listed.or((status == "405").then_some(&other_method));
        let listed = listed.unwrap_or_else(|| panic!("status {status} is not described: {}", answer.describe()));
        let response = self.resolved(listed);
        self.check_headers(response, answer);
        let kind = answer.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
        let operation = format!("{} {}", row.method, row.path);
        if response.get("content").is_none() {
            assert!(kind.is_empty() && answer.text().is_empty(), "a body that is not described: {}", answer.describe());
            self.seen.lock().unwrap().insert(Seen { operation, status, code: 0 });
            return;
        }
        let content = response["content"].get(kind);
        let content = content.unwrap_or_else(|| panic!("`{kind}` is not described: {}", answer.describe()));
        let (body, code) = match kind {
            "application/json" => (answer.json(), answer.json()["code"].as_u64().unwrap_or(0)),
            _ => (Value::String(answer.text()), 0),
        };
        self.check_value(&content["schema"], &body, &answer.describe());
        self.seen.lock().unwrap().insert(Seen { operation, status, code });
    }

    #[track_caller]
    fn check_headers(&self, response: &Value, answer: &Answer) {
        let nothing = Map::new();
        let described = response["headers"].as_object().unwrap_or(&nothing);
        for (name, header) in described {
            let header = self.resolved(header);
            let values = answer.header_all(name);
            assert!(!values.is_empty() || header["required"] != true, "no {name} in {}", answer.describe());
            for value in values {
                let number =
                    value.parse::<u64>().ok().filter(|_| self.resolved(&header["schema"])["type"] == "integer");
                let value = number.map_or_else(|| json!(value), |number| json!(number));
                self.check_value(&header["schema"], &value, &format!("{name} in {}", answer.describe()));
            }
        }
        for (name, _) in &answer.headers {
            let known = UNDESCRIBED.iter().any(|known| name.eq_ignore_ascii_case(known))
                || described.keys().any(|known| name.eq_ignore_ascii_case(known));
            assert!(known, "the header {name} is not described: {}", answer.describe());
        }
    }

    /// Fails unless a value is one of this schema's, to its last member.
    #[track_caller]
    pub fn check_value(&self, schema: &Value, value: &Value, whose: &str) {
        let mut root = schema.clone();
        close(&mut root);
        if root.get("$ref").is_some() {
            root["unevaluatedProperties"] = json!(false);
        }
        root["components"] = self.closed.clone();
        let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&root);
        let validator = validator.unwrap_or_else(|fault| panic!("no schema: {fault}: {schema}"));
        let faults: Vec<String> =
            validator.iter_errors(value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
        assert!(faults.is_empty(), "not as described: {faults:#?}\n{whose}");
    }
}

/// The codes that a schema of an answer allows; 0 where it is a success, or no envelope.
pub fn codes(schema: &Value) -> Vec<u64> {
    let code = &schema["properties"]["code"];
    match code["enum"].as_array() {
        Some(listed) => listed.iter().filter_map(Value::as_u64).collect(),
        None => vec![code["const"].as_u64().unwrap_or(0)],
    }
}

/// Makes members that a schema does not name faults, all the way down.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("type").is_some_and(|kind| kind == "object") && members.contains_key("properties") {
                members.insert("unevaluatedProperties".to_owned(), json!(false));
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

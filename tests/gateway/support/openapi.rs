//! The gateway's OpenAPI document, and the check of responses against it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use deskgate::endpoints::OwnRoute;
use serde_json::{Map, Value, json};

use super::{Gateway, Response};

/// Headers of the transport and of every response; the document does not list them.
const UNDESCRIBED: [&str; 6] =
    ["content-type", "content-length", "date", "connection", "x-content-type-options", "referrer-policy"];

/// Schemas that other schemas extend, and that therefore stay open.
const ENVELOPES: [&str; 2] = ["Success", "Refusal"];

/// `GET /api/auth/openapi.json` and the responses observed so far.
pub struct OpenApiDocument {
    document: Value,
    /// The same schemas without additional properties: a response may have no undocumented member.
    closed: Value,
    seen: Mutex<BTreeSet<ResponseKind>>,
}

/// A status and code of an operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResponseKind {
    /// `GET /version`
    pub operation: String,
    pub status: String,
    /// The envelope's code, or 0 where there is none.
    pub code: u64,
}

impl OpenApiDocument {
    /// Fetches the document.
    pub async fn of(desk: &Gateway) -> OpenApiDocument {
        let document = desk.anonymous().get("/api/auth/openapi.json").await.expect_status(200).json();
        let mut closed = json!({ "schemas": document["components"]["schemas"] });
        for (name, schema) in closed["schemas"].as_object_mut().expect("schemas") {
            if !ENVELOPES.contains(&name.as_str()) {
                close(schema);
            }
        }
        OpenApiDocument { document, closed, seen: Mutex::default() }
    }

    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Resolves a `$ref`; returns any other value unchanged.
    #[track_caller]
    pub fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref").and_then(Value::as_str) {
            None => value,
            Some(reference) => {
                let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} is not local"));
                self.document.pointer(pointer).unwrap_or_else(|| panic!("{reference} does not exist"))
            }
        }
    }

    /// The operation of an endpoint.
    #[track_caller]
    pub fn operation(&self, row: &OwnRoute) -> &Value {
        let operation = &self.document["paths"][row.path][row.method.to_ascii_lowercase()];
        assert!(operation.is_object(), "{} {} is not described", row.method, row.path);
        operation
    }

    /// Whether an operation documents this status.
    pub fn documents_status(&self, row: &OwnRoute, status: &str) -> bool {
        self.operation(row)["responses"].get(status).is_some()
    }

    /// All documented responses.
    pub fn documented_responses(&self) -> BTreeSet<ResponseKind> {
        let mut described = BTreeSet::new();
        for (path, item) in self.document["paths"].as_object().expect("paths") {
            let operations = item.as_object().expect("operations").iter().filter(|(key, _)| *key != "parameters");
            for (method, operation) in operations {
                let operation_name = format!("{} {path}", method.to_ascii_uppercase());
                for (status, schema) in operation["responses"].as_object().expect("responses") {
                    let content = self.resolve(schema)["content"].as_object();
                    // A response without a body has no code.
                    let schema_codes = content.map_or_else(
                        || BTreeSet::from([0]),
                        |content| content.values().flat_map(|content| schema_codes(&content["schema"])).collect(),
                    );
                    for code in schema_codes {
                        described.insert(ResponseKind {
                            operation: operation_name.clone(),
                            status: status.clone(),
                            code,
                        });
                    }
                }
            }
        }
        described
    }

    /// The responses observed so far.
    pub fn observed_responses(&self) -> BTreeSet<ResponseKind> {
        self.seen.lock().unwrap().clone()
    }

    /// Adds the responses observed at another gateway.
    pub fn add_observed(&self, other: &OpenApiDocument) {
        self.seen.lock().unwrap().extend(other.observed_responses());
    }

    /// Asserts that the document describes this response: status, content type, headers and body.
    #[track_caller]
    pub fn check(&self, row: &OwnRoute, response: &Response) {
        let status = response.status.to_string();
        // 405 is documented once for all paths.
        let other_method = json!({ "$ref": "#/components/responses/MethodNotAllowed" });
        let listed = self.operation(row)["responses"].get(&status);
        let listed = listed.or((status == "405").then_some(&other_method));
        let listed = listed.unwrap_or_else(|| panic!("status {status} is not described: {}", response.describe()));
        let described = self.resolve(listed);
        self.check_headers(described, response);
        let kind = response.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
        let operation = format!("{} {}", row.method, row.path);
        if described.get("content").is_none() {
            assert!(
                kind.is_empty() && response.text().is_empty(),
                "a body that is not described: {}",
                response.describe()
            );
            self.seen.lock().unwrap().insert(ResponseKind { operation, status, code: 0 });
            return;
        }
        let content = described["content"].get(kind);
        let content = content.unwrap_or_else(|| panic!("`{kind}` is not described: {}", response.describe()));
        let (body, code) = match kind {
            "application/json" => (response.json(), response.json()["code"].as_u64().unwrap_or(0)),
            _ => (Value::String(response.text()), 0),
        };
        self.check_value(&content["schema"], &body, &response.describe());
        self.seen.lock().unwrap().insert(ResponseKind { operation, status, code });
    }

    #[track_caller]
    fn check_headers(&self, described: &Value, response: &Response) {
        let nothing = Map::new();
        let described = described["headers"].as_object().unwrap_or(&nothing);
        for (name, header) in described {
            let header = self.resolve(header);
            let values = response.header_all(name);
            assert!(!values.is_empty() || header["required"] != true, "no {name} in {}", response.describe());
            for value in values {
                let number = value.parse::<u64>().ok().filter(|_| self.resolve(&header["schema"])["type"] == "integer");
                let value = number.map_or_else(|| json!(value), |number| json!(number));
                self.check_value(&header["schema"], &value, &format!("{name} in {}", response.describe()));
            }
        }
        for (name, _) in &response.headers {
            let known = UNDESCRIBED.iter().any(|known| name.eq_ignore_ascii_case(known))
                || described.keys().any(|known| name.eq_ignore_ascii_case(known));
            assert!(known, "the header {name} is not described: {}", response.describe());
        }
    }

    /// Asserts that a value matches this schema and has no undocumented member.
    #[track_caller]
    pub fn check_value(&self, schema: &Value, value: &Value, whose: &str) {
        let mut root = schema.clone();
        close(&mut root);
        if root.get("$ref").is_some() {
            root["unevaluatedProperties"] = json!(false);
        }
        root["components"] = self.closed.clone();
        let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&root);
        let validator = validator.unwrap_or_else(|fault| panic!("invalid schema: {fault}: {schema}"));
        let faults: Vec<String> =
            validator.iter_errors(value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
        assert!(faults.is_empty(), "not as described: {faults:#?}\n{whose}");
    }
}

/// The codes that a response schema allows; 0 for a success or a body without an envelope.
pub fn schema_codes(schema: &Value) -> Vec<u64> {
    let code = &schema["properties"]["code"];
    match code["enum"].as_array() {
        Some(listed) => listed.iter().filter_map(Value::as_u64).collect(),
        None => vec![code["const"].as_u64().unwrap_or(0)],
    }
}

/// Forbids additional properties, recursively.
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

//! GET /api/auth/openapi.json is complete and true: it names every endpoint and every code and nothing else, and every
//! endpoint is really called, in every way that is easy to provoke, and answers as it says.

use std::collections::BTreeSet;
use std::pin::Pin;

use deskgate::endpoints::{Endpoint, OwnAccess, OwnRoute, TABLE};
use deskgate::error::Code;

use crate::support::*;

mod outages;

mod refusals;

mod walks;

/// What is described and not provoked here: the session would have to end between two steps of one request.
const NOT_PROVOKED: &[(&str, &str, u64)] = &[
    ("GET /api/auth/scan/status", "401", 1001),
    ("GET /api/auth/oauth2/callback", "401", 0),
    ("POST /api/auth/bind", "401", 1001),
    ("POST /api/agents/login", "401", 1001),
    ("POST /api/dev/login", "401", 1001),
];

/// Faults of ours. Only where a broken platform makes one is it provoked.
const FAULT: &str = "500";

/// A gateway, what it says of itself, and who calls it.
struct Survey {
    desk: Gateway,
    description: OpenApiDocument,
    agent: Client,
    /// Stepped up.
    admin: Client,
    /// Half-authenticated.
    half: Client,
}

impl Survey {
    /// Of a gateway with these settings, where nothing is counted.
    async fn of(settings: &str) -> Survey {
        let mut paths: Vec<&str> = TABLE.iter().map(|row| row.path).collect();
        paths.dedup();
        let rates: String = paths.iter().map(|path| format!("[[endpoint]]\npath = \"{path}\"\nrate = []\n")).collect();
        let setup = Gateway::setup().more_rules(&rates).toml("[bind]\nproof = \"none\"").toml(settings);
        let desk = setup.start().await;
        let description = OpenApiDocument::of(&desk).await;
        let agent = desk.sign_in("a2001").await;
        let admin = desk.sign_in("m5001").await;
        OtpDevice::set_up_and_bind(&admin).await;
        let half = half_authenticated(&desk).await;
        Survey { desk, description, agent, admin, half }
    }

    /// Somebody who may call this.
    fn caller(&self, row: &OwnRoute) -> Client {
        match row.access {
            OwnAccess::Anyone => self.desk.anonymous(),
            OwnAccess::SignedIn | OwnAccess::SignedInAnyStage => self.agent.clone(),
            OwnAccess::Admin | OwnAccess::SteppedUpAdmin => self.admin.clone(),
        }
    }

    /// Calls an endpoint, with JSON if it is given, and holds the answer against the description.
    async fn ask(&self, row: &OwnRoute, client: &Client, query: &str, body: Option<Value>) -> Response {
        let target = format!("{}{query}", path(row));
        // Boxed: a walk has dozens of these.
        Box::pin(self.ask_at(row, client, target, body)).await
    }

    /// The same at a path with another parameter.
    async fn ask_at(&self, row: &OwnRoute, client: &Client, target: String, body: Option<Value>) -> Response {
        let response = match body {
            None => client.send(row.method, &target, &[], b"").await,
            Some(body) => {
                let json = [("Content-Type", "application/json")];
                client.send(row.method, &target, &json, body.to_string().as_bytes()).await
            }
        };
        self.saw(row, response)
    }

    /// Holds an answer that has come against the description.
    fn saw(&self, row: &OwnRoute, response: Response) -> Response {
        self.description.check(row, &response);
        response
    }
}

/// A row's path; an identifier that is nobody's stands for its parameter.
fn path(row: &OwnRoute) -> String {
    row.path.replace("{id}", &"a".repeat(32))
}

/// The row of an endpoint.
fn row_of(endpoint: Endpoint) -> &'static OwnRoute {
    TABLE.iter().find(|row| row.endpoint == endpoint).expect("every endpoint has a row")
}

/// A device for one-time passwords.
struct OtpDevice {
    secret: deskgate::signin::totp::OtpSecret,
}

impl OtpDevice {
    /// The one that a setup's answer offers.
    fn of(setup: &Value) -> OtpDevice {
        let bytes = decode_base32(setup["secret"].as_str().expect("a secret"));
        OtpDevice { secret: deskgate::signin::totp::OtpSecret::from_bytes(&bytes).expect("a secret") }
    }

    async fn set_up_and_bind(client: &Client) -> OtpDevice {
        let device = OtpDevice::of(&client.post("/api/auth/otp-setup").await.expect_code(0).data());
        client.post_json("/api/auth/otp-bind", &device.code(0)).await.expect_code(0);
        device
    }

    /// The body with the code so many steps from now. Those of the next step are taken already.
    fn code(&self, steps: i64) -> Value {
        use deskgate::signin::totp::Step;
        let step = Step::at(deskgate::domain::clock::Clock::system().now()).number() + steps;
        json!({ "code": self.secret.code(Step::from_number(step)).text() })
    }

    /// A body with a code that is none of its.
    fn wrong_code(&self) -> Value {
        let near: Vec<Value> = (-3..=3).map(|steps| self.code(steps)).collect();
        let codes = (0..=near.len()).map(|digit| json!({ "code": digit.to_string().repeat(6) }));
        codes.into_iter().find(|code| !near.contains(code)).expect("more codes than are near")
    }
}

/// A code of the platform for a member, as an agent's client would get it.
async fn platform_code(desk: &Gateway, member: &str) -> String {
    let phone = desk.phone(member);
    let callback = phone.authorize(&phone.authorize_url(&desk.client_url("itagent")).await).await;
    query_parameter(&callback, "code").expect("a code")
}

/// Changes the directory behind the gateway's back.
async fn change_directory(desk: &Gateway, statement: &'static str) {
    change_database(desk, "directory.db", statement).await;
}

async fn change_database(desk: &Gateway, file: &str, statement: &'static str) {
    let url = format!("sqlite:{}", desk.data_dir().join(file).display());
    let mut database = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.expect("a database");
    sqlx::raw_sql(statement).execute(&mut database).await.expect("a change");
}

/// An agent who must have a device and has none.
async fn half_authenticated(desk: &Gateway) -> Client {
    change_directory(desk, "UPDATE agents SET otp_required = 1 WHERE employee_id = 's3001'").await;
    let body = json!({ "employee_id": "s3001", "code": platform_code(desk, "s3001").await });
    let data = desk.anonymous().post_json("/api/agents/login", &body).await.expect_code(0).data();
    desk.with_token(data["token"].as_str().expect("a token"))
}

#[tokio::test]
async fn openapi_lists_exactly_the_gateways_endpoints() {
    let desk = Gateway::start().await;
    let description = OpenApiDocument::of(&desk).await;
    let described: BTreeSet<String> =
        description.documented_responses().into_iter().map(|seen| seen.operation).collect();
    let rows: BTreeSet<String> = TABLE.iter().map(|row| format!("{} {}", row.method, row.path)).collect();
    assert_eq!(described, rows);
    let mut ids = BTreeSet::new();
    for row in TABLE {
        let operation = description.operation(row);
        let (access, security) = match row.access {
            OwnAccess::Anyone => ("anyone", json!([])),
            OwnAccess::SignedIn => ("signed_in", json!([{ "bearer": [] }])),
            OwnAccess::SignedInAnyStage => ("signed_in_any_stage", json!([{ "bearer": [] }])),
            OwnAccess::Admin => ("admin", json!([{ "bearer": [] }])),
            OwnAccess::SteppedUpAdmin => ("stepped_up_admin", json!([{ "bearer": [] }])),
        };
        assert_eq!((&operation["x-deskgate-access"], &operation["security"]), (&json!(access), &security), "{row:?}");
        assert!(operation["summary"].is_string() && operation["tags"][0].is_string(), "{row:?}");
        assert!(ids.insert(operation["operationId"].as_str().expect("an id").to_owned()), "{row:?}");
    }
}

#[tokio::test]
async fn openapi_names_this_gateway() {
    let desk = Gateway::start().await;
    let response = desk.anonymous().get("/api/auth/openapi.json").await.expect_status(200);
    assert!(!response.text().contains("{{"), "something was not filled in");
    let document = response.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["servers"], json!([{ "url": desk.public_url() }]));
}

#[tokio::test]
async fn openapi_lists_exactly_the_error_codes() {
    let codes: BTreeSet<u64> = Code::ALL.iter().map(|code| u64::from(code.number())).collect();
    let desk = Gateway::start().await;
    let description = OpenApiDocument::of(&desk).await;
    let components = &description.document()["components"];
    let listed = components["schemas"]["ErrorCode"]["oneOf"].as_array().expect("codes");
    let listed: BTreeSet<u64> = listed.iter().filter_map(|code| code["const"].as_u64()).collect();
    assert_eq!(listed, codes, "the ErrorCode schema");
    let responses = components["responses"].as_object().expect("responses").values();
    let schemas = responses.filter_map(|response| response["content"]["application/json"].get("schema"));
    let documented: BTreeSet<u64> = schemas.flat_map(schema_codes).collect();
    assert_eq!(documented, codes, "the codes of the documented responses");
}

#[tokio::test]
async fn openapi_references_resolve_and_examples_validate() {
    fn visit(description: &OpenApiDocument, value: &Value) {
        if let Some(object) = value.as_object() {
            description.resolve(value);
            if let (Some(schema), Some(example)) = (object.get("schema"), object.get("example")) {
                description.check_value(schema, example, &value.to_string());
            }
            object.values().for_each(|member| visit(description, member));
        }
        value.as_array().into_iter().flatten().for_each(|item| visit(description, item));
    }
    let desk = Gateway::start().await;
    let description = OpenApiDocument::of(&desk).await;
    visit(&description, description.document());
    for (name, schema) in description.document()["components"]["schemas"].as_object().expect("schemas") {
        for example in schema["examples"].as_array().into_iter().flatten() {
            let named = json!({ "$ref": format!("#/components/schemas/{name}") });
            description.check_value(&named, example, name);
        }
    }
}

#[tokio::test]
async fn every_endpoint_responds_as_documented() {
    let survey = Survey::of("").await;
    for row in TABLE {
        Box::pin(walks::walk(&survey, row)).await;
        let operation = format!("{} {}", row.method, row.path);
        let succeeded = |seen: &ResponseKind| seen.operation == operation && seen.status.starts_with(['2', '3']);
        assert!(
            survey.description.observed_responses().iter().any(succeeded),
            "{operation} was never called with success"
        );
    }
    for row in TABLE {
        Box::pin(refusals::at_the_door(&survey, row)).await;
        Box::pin(refusals::for_want_of_a_token(&survey, row)).await;
        Box::pin(refusals::of_the_body(&survey, row)).await;
    }
    let description = &survey.description;
    let elsewhere: [Pin<Box<dyn Future<Output = OpenApiDocument>>>; 7] = [
        Box::pin(refusals::too_slow()),
        Box::pin(refusals::too_many()),
        Box::pin(refusals::outside_development_mode()),
        Box::pin(walks::without_a_tap()),
        Box::pin(outages::platform()),
        Box::pin(outages::state()),
        Box::pin(outages::drain()),
    ];
    for other in futures::future::join_all(elsewhere).await {
        description.add_observed(&other);
    }

    // What is described and never comes would be as untrue as what comes and is not described.
    let (came, described) = (description.observed_responses(), description.documented_responses());
    let excused: BTreeSet<ResponseKind> = NOT_PROVOKED
        .iter()
        .map(|(operation, status, code)| ResponseKind {
            operation: (*operation).into(),
            status: (*status).into(),
            code: *code,
        })
        .collect();
    let never: Vec<_> =
        described.iter().filter(|one| one.status != FAULT && !came.contains(one) && !excused.contains(one)).collect();
    assert!(never.is_empty(), "described and never seen: {never:#?}");
    let needless: Vec<_> = excused.iter().filter(|one| came.contains(one) || !described.contains(one)).collect();
    assert!(needless.is_empty(), "excused for nothing: {needless:#?}");
}

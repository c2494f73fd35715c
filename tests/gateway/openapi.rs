//! GET /api/auth/openapi.json: it lists exactly the gateway's endpoints and error codes, and every endpoint is called to
//! check its responses against the document.

use std::collections::BTreeSet;
use std::pin::Pin;

use deskgate::endpoints::{Endpoint, OwnAccess, OwnRoute, TABLE};
use deskgate::error::Code;

use crate::support::*;

mod outages;

mod refusals;

mod endpoint_calls;

/// Documented responses that the test cannot provoke: the session would have to end between two steps of one request.
const NOT_PROVOKED: &[(&str, &str, u64)] = &[
    ("GET /api/auth/scan/status", "401", 1001),
    ("GET /api/auth/oauth2/callback", "401", 0),
    ("POST /api/auth/bind", "401", 1001),
    ("POST /api/agents/login", "401", 1001),
    ("POST /api/dev/login", "401", 1001),
];

/// Internal errors; the test provokes only those of a failing platform.
const INTERNAL_ERROR: &str = "500";

/// A gateway, its OpenAPI document and the clients that call it.
struct OpenApiFixture {
    desk: Gateway,
    openapi: OpenApiDocument,
    agent: Client,
    /// An administrator with a recent step-up.
    admin: Client,
    /// A client with a half-authenticated token.
    half: Client,
}

impl OpenApiFixture {
    /// Starts a gateway with these settings and without rate limits.
    async fn with(settings: &str) -> OpenApiFixture {
        let mut paths: Vec<&str> = TABLE.iter().map(|row| row.path).collect();
        paths.dedup();
        let rates: String = paths.iter().map(|path| format!("[[endpoint]]\npath = \"{path}\"\nrate = []\n")).collect();
        let setup = Gateway::setup().more_rules(&rates).toml("[bind]\nproof = \"none\"").toml(settings);
        let desk = setup.start().await;
        let openapi = OpenApiDocument::of(&desk).await;
        let agent = desk.sign_in("a2001").await;
        let admin = desk.sign_in("m5001").await;
        let device = JsonOtpDevice::set_up_and_bind(&admin).await;
        admin.post_json("/api/auth/otp-verify", &device.code(1)).await.expect_code(0);
        let half = half_authenticated(&desk).await;
        OpenApiFixture { desk, openapi, agent, admin, half }
    }

    /// A client that is allowed to call the endpoint.
    fn caller(&self, row: &OwnRoute) -> Client {
        match row.access {
            OwnAccess::Anyone => self.desk.anonymous(),
            OwnAccess::SignedIn | OwnAccess::SignedInAnyStage | OwnAccess::Proven | OwnAccess::ProvenAnyStage => {
                self.agent.clone()
            }
            OwnAccess::Admin | OwnAccess::SteppedUpAdmin => self.admin.clone(),
        }
    }

    /// Calls an endpoint, with a JSON body if there is one, and checks the response against the document.
    async fn call(&self, row: &OwnRoute, client: &Client, query: &str, body: Option<Value>) -> Response {
        let target = format!("{}{query}", path(row));
        // Boxed, because one test function has dozens of these futures.
        Box::pin(self.call_at(row, client, target, body)).await
    }

    /// Like `call`, with the whole target.
    async fn call_at(&self, row: &OwnRoute, client: &Client, target: String, body: Option<Value>) -> Response {
        let response = match body {
            None => client.send(row.method, &target, &[], b"").await,
            Some(body) => {
                let json = [("Content-Type", "application/json")];
                client.send(row.method, &target, &json, body.to_string().as_bytes()).await
            }
        };
        self.check(row, response)
    }

    /// Checks a response against the document.
    fn check(&self, row: &OwnRoute, response: Response) -> Response {
        self.openapi.check(row, &response);
        response
    }
}

/// The path of a row, with an unknown ID as its parameter.
fn path(row: &OwnRoute) -> String {
    row.path.replace("{id}", &"a".repeat(32))
}

fn row_of(endpoint: Endpoint) -> &'static OwnRoute {
    TABLE.iter().find(|row| row.endpoint == endpoint).expect("every endpoint has a row")
}

/// A TOTP device whose codes are JSON bodies.
struct JsonOtpDevice {
    secret: deskgate::signin::totp::OtpSecret,
}

impl JsonOtpDevice {
    /// The device of an `otp-setup` response.
    fn of(setup: &Value) -> JsonOtpDevice {
        let bytes = decode_base32(setup["secret"].as_str().expect("a secret"));
        JsonOtpDevice { secret: deskgate::signin::totp::OtpSecret::from_bytes(&bytes).expect("a secret") }
    }

    async fn set_up_and_bind(client: &Client) -> JsonOtpDevice {
        let device = JsonOtpDevice::of(&client.post("/api/auth/otp-setup").await.expect_code(0).data());
        client.post_json("/api/auth/otp-bind", &device.code(0)).await.expect_code(0);
        device
    }

    /// A body with the code of the step `steps` from now.
    fn code(&self, steps: i64) -> Value {
        use deskgate::signin::totp::Step;
        let step = Step::at(deskgate::domain::clock::Clock::system().now()).number() + steps;
        json!({ "code": self.secret.code(Step::from_number(step)).text() })
    }

    /// A body with a code that is valid in none of the steps around now.
    fn wrong_code(&self) -> Value {
        let near: Vec<Value> = (-3..=3).map(|steps| self.code(steps)).collect();
        let codes = (0..=near.len()).map(|digit| json!({ "code": digit.to_string().repeat(6) }));
        codes.into_iter().find(|code| !near.contains(code)).expect("a free code")
    }
}

/// A platform code for a member, as the agent client gets it.
async fn platform_code(desk: &Gateway, member: &str) -> String {
    let phone = desk.phone(member);
    let callback = phone.authorize(&phone.authorize_url(&desk.client_url("itagent")).await).await;
    query_parameter(&callback, "code").expect("a code")
}

/// A half-authenticated client: an agent who must have a TOTP device and has none.
async fn half_authenticated(desk: &Gateway) -> Client {
    desk.change_directory("UPDATE agents SET otp_required = 1 WHERE employee_id = 's3001'").await;
    let body = json!({ "employee_id": "s3001", "code": platform_code(desk, "s3001").await });
    let data = desk.anonymous().post_json("/api/agents/login", &body).await.expect_code(0).data();
    desk.with_token(data["token"].as_str().expect("a token"))
}

#[tokio::test]
async fn openapi_lists_exactly_the_gateways_endpoints() {
    let desk = Gateway::start().await;
    let openapi = OpenApiDocument::of(&desk).await;
    let documented: BTreeSet<String> = openapi.documented_responses().into_iter().map(|kind| kind.operation).collect();
    let rows: BTreeSet<String> = TABLE.iter().map(|row| format!("{} {}", row.method, row.path)).collect();
    assert_eq!(documented, rows);
    let mut ids = BTreeSet::new();
    for row in TABLE {
        let operation = openapi.operation(row);
        let (access, security) = match row.access {
            OwnAccess::Anyone => ("anyone", json!([])),
            OwnAccess::SignedIn => ("signed_in", json!([{ "bearer": [] }])),
            OwnAccess::SignedInAnyStage => ("signed_in_any_stage", json!([{ "bearer": [] }])),
            OwnAccess::Proven => ("proven", json!([{ "bearer": [] }])),
            OwnAccess::ProvenAnyStage => ("proven_any_stage", json!([{ "bearer": [] }])),
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
    assert!(!response.text().contains("{{"), "a placeholder is not filled in");
    let document = response.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["servers"], json!([{ "url": desk.public_url() }]));
}

#[tokio::test]
async fn openapi_lists_exactly_the_error_codes() {
    let codes: BTreeSet<u64> = Code::ALL.iter().map(|code| u64::from(code.number())).collect();
    let desk = Gateway::start().await;
    let openapi = OpenApiDocument::of(&desk).await;
    let components = &openapi.document()["components"];
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
    fn visit(openapi: &OpenApiDocument, value: &Value) {
        if let Some(object) = value.as_object() {
            openapi.resolve(value);
            if let (Some(schema), Some(example)) = (object.get("schema"), object.get("example")) {
                openapi.check_value(schema, example, &value.to_string());
            }
            object.values().for_each(|member| visit(openapi, member));
        }
        value.as_array().into_iter().flatten().for_each(|item| visit(openapi, item));
    }
    let desk = Gateway::start().await;
    let openapi = OpenApiDocument::of(&desk).await;
    visit(&openapi, openapi.document());
    for (name, schema) in openapi.document()["components"]["schemas"].as_object().expect("schemas") {
        for example in schema["examples"].as_array().into_iter().flatten() {
            let named = json!({ "$ref": format!("#/components/schemas/{name}") });
            openapi.check_value(&named, example, name);
        }
    }
}

#[tokio::test]
async fn every_endpoint_responds_as_documented() {
    let fixture = OpenApiFixture::with("").await;
    for row in TABLE {
        Box::pin(endpoint_calls::call_endpoint(&fixture, row)).await;
        let operation = format!("{} {}", row.method, row.path);
        let succeeded = |kind: &ResponseKind| kind.operation == operation && kind.status.starts_with(['2', '3']);
        assert!(
            fixture.openapi.observed_responses().iter().any(succeeded),
            "{operation} was never called successfully"
        );
    }
    for row in TABLE {
        Box::pin(refusals::malformed_requests(&fixture, row)).await;
        Box::pin(refusals::insufficient_tokens(&fixture, row)).await;
        Box::pin(refusals::invalid_bodies(&fixture, row)).await;
    }
    let openapi = &fixture.openapi;
    let other_gateways: [Pin<Box<dyn Future<Output = OpenApiDocument>>>; 7] = [
        Box::pin(refusals::slow_requests()),
        Box::pin(refusals::rate_limits()),
        Box::pin(refusals::outside_development_mode()),
        Box::pin(endpoint_calls::automatic_confirmation()),
        Box::pin(outages::platform_failure()),
        Box::pin(outages::storage_failure()),
        Box::pin(outages::drain()),
    ];
    for other in futures::future::join_all(other_gateways).await {
        openapi.add_observed(&other);
    }

    // Every documented response must have been observed.
    let (observed, documented) = (openapi.observed_responses(), openapi.documented_responses());
    let exceptions: BTreeSet<ResponseKind> = NOT_PROVOKED
        .iter()
        .map(|(operation, status, code)| ResponseKind {
            operation: (*operation).into(),
            status: (*status).into(),
            code: *code,
        })
        .collect();
    let missing: Vec<_> = documented
        .iter()
        .filter(|kind| kind.status != INTERNAL_ERROR && !observed.contains(kind) && !exceptions.contains(kind))
        .collect();
    assert!(missing.is_empty(), "documented and never observed: {missing:#?}");
    let needless: Vec<_> =
        exceptions.iter().filter(|kind| observed.contains(kind) || !documented.contains(kind)).collect();
    assert!(needless.is_empty(), "needless exceptions: {needless:#?}");
}

//! A collector of traces: decodes OTLP with the protocol's own types.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;

use super::eventually;

/// A listening collector.
pub struct Collector {
    address: SocketAddr,
    state: Arc<CollectorState>,
}

#[derive(Default)]
struct CollectorState {
    requests: Mutex<Vec<ExportTraceServiceRequest>>,
    raw: Mutex<Vec<u8>>,
    /// The status of responses, if not 200.
    status: Mutex<Option<StatusCode>>,
    /// The status of the next response alone.
    next_status: Mutex<Option<StatusCode>>,
}

impl Collector {
    pub async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::<CollectorState>::default();
        let shared = state.clone();
        let receive = async move |headers: HeaderMap, body: Bytes| {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            let next = shared.next_status.lock().expect("a status").take();
            if let Some(status) = next.or(*shared.status.lock().expect("a status")) {
                return (status, Vec::new());
            }
            shared.raw.lock().expect("bytes").extend_from_slice(&body);
            let request = ExportTraceServiceRequest::decode(body).expect("a message of OTLP");
            shared.requests.lock().expect("requests").push(request);
            (StatusCode::OK, ExportTraceServiceResponse::default().encode_to_vec())
        };
        let app = Router::new().route("/v1/traces", post(receive));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Collector { address, state }
    }

    /// The settings of a gateway that sends its spans here.
    pub fn settings(&self, sample: &str) -> String {
        format!("[traces]\nendpoint = \"http://{}\"\nsample = {sample}\n", self.address)
    }

    /// Answers with another status from now on.
    pub fn fail_with(&self, status: Option<u16>) {
        let status = status.map(|status| StatusCode::from_u16(status).expect("a status"));
        *self.state.status.lock().expect("a status") = status;
    }

    /// Answers the next request with another status.
    pub fn fail_once_with(&self, status: u16) {
        *self.state.next_status.lock().expect("a status") = StatusCode::from_u16(status).ok();
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let requests = self.state.requests.lock().expect("requests");
        let of_resources = requests.iter().flat_map(|request| &request.resource_spans);
        let of_scopes = of_resources.flat_map(|resource| {
            let attributes = resource.resource.as_ref().expect("a resource").attributes.clone();
            resource.scope_spans.iter().map(move |scope| (attributes.clone(), scope))
        });
        let spans = of_scopes.flat_map(|(resource, scope)| {
            scope.spans.iter().map(move |span| CollectedSpan { span: span.clone(), resource: resource.clone() })
        });
        spans.collect()
    }

    /// Waits for the span of a request to this path, and returns it with the spans of its attempts.
    pub async fn request(&self, path: &str) -> (CollectedSpan, Vec<CollectedSpan>) {
        eventually(&format!("a span of {path}"), || async {
            let spans = self.spans();
            let server =
                spans.iter().find(|span| span.kind() == "server" && span.text("url.path") == Some(path))?.clone();
            let attempts = spans.into_iter().filter(|span| span.span.parent_span_id == server.span.span_id).collect();
            Some((server, attempts))
        })
        .await
    }

    /// All bytes so far, to be searched for what must not be in them.
    pub fn raw(&self) -> Vec<u8> {
        self.state.raw.lock().expect("bytes").clone()
    }
}

/// A span and the attributes of its resource.
#[derive(Debug, Clone)]
pub struct CollectedSpan {
    pub span: Span,
    pub resource: Vec<KeyValue>,
}

fn find<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a AnyValue> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
}

impl CollectedSpan {
    pub fn kind(&self) -> &'static str {
        match self.span.kind {
            2 => "server",
            3 => "client",
            _ => "other",
        }
    }

    /// A text attribute.
    pub fn text(&self, key: &str) -> Option<&str> {
        match find(&self.span.attributes, key) {
            Some(AnyValue::StringValue(text)) => Some(text),
            _ => None,
        }
    }

    /// A numeric attribute.
    pub fn number(&self, key: &str) -> Option<i64> {
        match find(&self.span.attributes, key) {
            Some(AnyValue::IntValue(number)) => Some(*number),
            _ => None,
        }
    }

    /// A text attribute of the resource.
    pub fn resource_text(&self, key: &str) -> Option<&str> {
        match find(&self.resource, key) {
            Some(AnyValue::StringValue(text)) => Some(text),
            _ => None,
        }
    }

    pub fn trace_id(&self) -> String {
        self.span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The `traceparent` of something that is a child of this span.
    pub fn as_parent(&self) -> String {
        let span: String = self.span.span_id.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("00-{}-{span}-01", self.trace_id())
    }

    /// Whether the span is an error.
    pub fn is_error(&self) -> bool {
        self.span.status.as_ref().is_some_and(|status| status.code == 2)
    }
}

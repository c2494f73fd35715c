//! Test support: the real binary on free ports, a recording upstream, and raw clients.
// Each file of the suite uses its own part of this.
#![allow(dead_code, unused_imports)]

mod browser;
mod buffered_stream;
mod client;
mod collector;
mod command;
mod connection;
mod database;
mod disk_faults;
mod fleet;
mod gateway;
mod http2;
mod http2_frames;
mod http2_upstream;
mod jwks_verifier;
mod movable_clock;
mod openapi;
mod otp_device;
mod phone;
mod platform;
mod process;
mod response;
mod setup;
mod sign_in;
mod stream;
mod telemetry;
mod tls;
mod token;
mod token_fixture;
mod upstream;
mod upstream_connection;
mod upstream_server;
mod wait;
mod websocket;
mod websocket_frame;

pub use browser::{Browser, BrowserProfile, DESKTOP, FormFactor, PHONE, decode_qr_code};
pub use buffered_stream::{BufferedStream, byte_pattern};
pub use client::{Client, CookieJar};
pub use collector::{CollectedSpan, Collector};
pub use command::CommandOutput;
pub use connection::{BodyFraming, Connection, raw_request};
pub use database::skipped_on_postgres;
pub use disk_faults::DiskFaults;
pub use fleet::Fleet;
pub use gateway::Gateway;
pub use http2::{Http2Client, Http2Stream};
pub use http2_frames::{END_HEADERS, END_STREAM, FrameKind, HeaderBlock, Http2Connection, Http2Frame, PeerReaction};
pub use http2_upstream::Http2Upstream;
pub use jwks_verifier::{ReplayGuard, Verifier};
pub use movable_clock::MovableClock;
pub use openapi::{OpenApiDocument, ResponseKind, schema_codes};
pub use otp_device::{OtpDevice, wait_for_otp_step_with_time_left};
pub use phone::{Form, Page, Phone, fragment_parameter, query_parameter};
pub use process::StartFailure;
pub use response::Response;
pub use setup::{GatewayFiles, Setup};
pub use stream::Stream;
pub use tls::{CertificateAndKey, CertificateAuthority, CertificateFiles, ClientTls, ServerAddress};
pub use token::{Signer, base64url, claims_of, decode_base32, header_of, jti_of};
pub use token_fixture::Fixture;
pub use upstream::{Behaviour, RecordedRequest, SocketEvent, Subprotocol, Upstream, ok_response};
pub use upstream_connection::{UpstreamConnection, UpstreamConnections, open_tunnel};
pub use wait::{TEST_TIMEOUT, assert_within_revocation_bound, eventually, within};
pub use websocket::{Handshake, SocketEnd, WebSocket};
pub use websocket_frame::{BINARY, CLOSE, CONTINUATION, Frame, PING, PONG, TEXT};

/// JSON values, used by most tests.
pub use serde_json::{Value, json};

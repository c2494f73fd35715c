//! What every test stands on: the real binary on free ports, an upstream that remembers, and clients
//! that can also say what no well-behaved client would.
// Each file of the suite uses its own part of this.
#![allow(dead_code, unused_imports)]

mod answer;
mod browser;
mod client;
mod description;
mod device;
mod far_end;
mod frame;
mod gateway;
mod http2;
mod http2_frames;
mod platform;
mod stream;
mod tls;
mod token;
mod upstream;
mod verifier;
mod wait;
mod websocket;
mod wire;

pub use answer::Answer;
pub use browser::{Browser, DESKTOP, Look, PHONE, Screen, read_code};
pub use client::{Client, Jar};
pub use description::{Description, Seen, codes};
pub use device::{Device, time_left_in_step};
pub use far_end::{End, Visit, Visits};
pub use frame::{BINARY, CLOSE, CONTINUATION, Frame, PING, PONG, TEXT};
pub use gateway::{Gateway, Ran, Refused, Setup};
pub use http2::Http2;
pub use http2_frames::{Block, END_HEADERS, END_STREAM, Frames, Http2Frame, Kind, Verdict};
pub use platform::{Form, Page, Phone, fragment_of, query_of};
pub use stream::Stream;
pub use tls::{Authority, CertificateFiles, Pair, Place, Trust};
pub use token::{Signer, base32, claims_of, header_of, jti_of, segment};
pub use upstream::{Behaviour, Chosen, Recorded, SocketEvent, Upstream};
pub use verifier::{OnceOnly, Verifier};
pub use wait::{PATIENCE, eventually, within, within_the_bound};
pub use websocket::{Ending, Handshake, Socket};
pub use wire::Connection;

/// What tests read beside the support itself.
pub use serde_json::{Value, json};

//! What every test stands on: the real binary on free ports, an upstream that remembers, and clients
//! that can also say what no well-behaved client would.
// Each file of the suite uses its own part of this.
#![allow(dead_code, unused_imports)]

mod answer;
mod client;
mod far_end;
mod frame;
mod gateway;
mod platform;
mod token;
mod upstream;
mod wait;
mod websocket;
mod wire;

pub use answer::Answer;
pub use client::{Client, Jar};
pub use far_end::{End, Visit, Visits};
pub use frame::{BINARY, CLOSE, CONTINUATION, Frame, PING, PONG, TEXT};
pub use gateway::{Gateway, Refused, Setup};
pub use platform::{Form, Page, Phone, fragment_of, query_of};
pub use token::{Signer, claims_of, header_of, jti_of, segment};
pub use upstream::{Behaviour, Chosen, Recorded, SocketEvent, Upstream};
pub use wait::{PATIENCE, eventually, within};
pub use websocket::{Ending, Handshake, Socket};
pub use wire::Connection;

/// What tests read beside the support itself.
pub use serde_json::{Value, json};

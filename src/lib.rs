//! deskgate is a reverse-proxy authentication gateway for an IT help desk. The modules are listed from
//! the outside in; `pipeline` and `gateway` show the lifecycle of a request.

// Parses arguments and runs one command per file.
pub mod cli;

// Composition root: starts, reloads and stops the gateway.
pub mod app;

// Explains how a request would be answered, with the pipeline's own phases.
pub mod explain;

// Accepts connections and carries requests to upstreams: most of HTTP/1.1 in the fast lane, all others through Pingora's sessions.
pub mod gateway;

// Chooses an address of an upstream, and knows which of them get requests.
pub mod upstreams;

// Decides about a request, one phase per file, independent of Pingora's session types.
pub mod pipeline;

// Matches a path to its rule and decides who may use it.
pub mod rules;

// Lists our own endpoints as data: method, path, access and operation.
pub mod endpoints;

// Signs and verifies tokens, assertions and cookies, and encrypts secrets at rest.
pub mod token;

// Caches sessions and applies every change to them.
pub mod sessions;

// Implements our own endpoints, one file each.
pub mod api;

// Signs employees in: tickets, OAuth2, binding, agents and one-time passwords.
pub mod signin;

// Executes what operators and administrators ask for, from CLI, control socket and HTTP alike.
pub mod admin;

// Calls the messaging platform through which employees sign in.
pub mod platform;

// Stores sessions and tickets, and publishes changes to them.
pub mod store;

// Writes and reads the SQLite files of the store and the directory.
pub mod sqlite;

// Stores employees, roles, agents, the login log and the audit log.
pub mod directory;

// Relays open WebSockets and closes them when their session ends.
pub mod sockets;

// Builds and writes responses.
pub mod reply;

// Renders the sign-in pages.
pub mod pages;

// Maps every error to its code, status and message.
pub mod error;

// Records sampled requests and exports their spans.
pub mod traces;

// Declares the Prometheus metrics.
pub mod metrics;

// Loads and checks the configuration.
pub mod config;

// Draws QR codes as PNG images and for terminals.
pub mod qr;

// Simulates the platform and a help desk for demonstrations and tests; not product code.
#[cfg(feature = "demo")]
pub mod demo;

// Holds every text that people read, in both languages.
pub mod messages;

// Defines the specification's types, the clock and randomness; uses no other module.
pub mod domain;

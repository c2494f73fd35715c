//! deskgate: the front door of an IT help desk. The modules in the order a request meets them.

// From arguments to a running gateway.
pub mod cli;

pub mod app;

pub mod operate;

// A simulated platform and help desk for development; not part of the product.
#[cfg(feature = "demo")]
pub mod demo;

// The words of the specification.
pub mod domain;

pub mod qr;

// What can be set.
pub mod config;

// What can go wrong, and what is told.
pub mod error;

pub mod metrics;

// The way of a request: come in …
pub mod gateway;

// … decide …
pub mod endpoints;

pub mod pipeline;

pub mod rules;

pub mod token;

// … and sign people in.
pub mod store;

pub mod directory;

pub mod platform;

pub mod signin;

// Answer, or keep a socket open.
pub mod sockets;

pub mod api;

pub mod pages;

pub mod reply;

//! deskgate: the front door of an IT help desk. The modules in the order a request meets them.

// The words of the specification.
pub mod domain;

// What can be set.
pub mod config;

// What can go wrong, and what is told.
pub mod error;

pub mod metrics;

// The way of a request: decide …
pub mod endpoints;

pub mod pipeline;

pub mod rules;

pub mod token;

// … and sign people in.
pub mod store;

pub mod directory;

pub mod platform;

//! deskgate: the front door of an IT help desk.
pub mod config;

pub mod domain;

pub mod directory;

pub mod endpoints;

pub mod error;

pub mod metrics;

pub mod pipeline;

pub mod rules;

pub mod store;

pub mod token;

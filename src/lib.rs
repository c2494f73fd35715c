//! deskgate: the front door of an IT help desk.
pub mod config;

pub mod domain;

pub mod error;

pub mod platform;

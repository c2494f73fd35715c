//! The migrations of both engines, in the program.
//!
//! They are listed by hand: the macro of sqlx that reads their folder would have every database driver compiled a
//! second time, for the macro itself.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

#[cfg(test)]
mod tests;

/// File names, `NUMBER_DESCRIPTION`, with their statements.
type Files = &'static [(&'static str, &'static str)];

macro_rules! files {
    ($engine:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../migrations/", $engine, "/", $name, ".sql")))),+]
    };
}

pub(super) const SQLITE: Files = files!(
    "sqlite":
    "0001_directory",
    "0002_login_client",
    "0003_factors",
    "0004_agents",
    "0005_lockouts",
    "0006_password_ids",
    "0007_audit_log",
    "0008_platform_links",
    "0009_platform_status",
    "0010_ever_assigned",
    "0011_link_status",
    "0012_sign_in_evidence",
    "0013_inactive_links",
    "0014_link_spellings",
    "0015_log_order",
    "0016_signing_keys",
    "0017_copy_target",
    "0018_login_request_id",
);

pub(super) const POSTGRES: Files = files!(
    "postgres":
    "0001_directory",
    "0002_signing_keys",
    "0003_copy_target",
    "0004_login_request_id",
);

/// Runs these migrations.
pub(super) fn migrator(files: Files) -> Migrator {
    Migrator::with_migrations(files.iter().filter_map(|(name, sql)| migration(name, sql)).collect())
}

fn migration(name: &str, sql: &'static str) -> Option<Migration> {
    let (number, description) = name.split_once('_')?;
    let description = Cow::Owned(description.replace('_', " "));
    Some(Migration::new(number.parse().ok()?, description, MigrationType::Simple, sql.into_sql_str(), false))
}

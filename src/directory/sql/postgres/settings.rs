//! How to reach a PostgreSQL server, and how much of it to use.

use std::path::PathBuf;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::domain::employee::EmployeeSource;
use crate::domain::postgres_url::{PostgresHost, PostgresUrl, SslMode};

/// The schema in the database that holds all tables, so that they can live beside those of another program.
pub(super) const SCHEMA: &str = "deskgate";

/// The schema of the views that take the place of our tables.
pub(super) const VIEWS: &str = "deskgate_views";

/// How to reach a PostgreSQL server, and how much of it to use.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// Server, database, user and password.
    pub url: PostgresUrl,
    /// Certificates of authorities to trust, beside the public ones.
    pub ca_file: Option<PathBuf>,
    /// Whose tables hold employees, roles and agents.
    pub employees: EmployeeSource,
    /// The maximum number of connections.
    pub pool: u32,
    /// How long an operation may take, with the wait for a connection.
    pub timeout: Duration,
}

impl PostgresSettings {
    /// Options for connections of the pool: the server itself ends a statement that takes too long.
    pub(super) fn for_operations(&self) -> PgConnectOptions {
        let limit = self.timeout.as_millis();
        let options = match self.employees {
            EmployeeSource::Own => self.for_migrations(),
            EmployeeSource::Views => self.for_migrations().options([("search_path", format!("{VIEWS},{SCHEMA}"))]),
        };
        options.options([
            ("statement_timeout", limit),
            ("lock_timeout", limit),
            // A gateway that is suspended in a transaction would keep its lock.
            ("idle_in_transaction_session_timeout", limit),
        ])
    }

    /// Options without limits of time. What the environment says about a server (`PGHOST`, …) does not apply.
    pub(super) fn for_migrations(&self) -> PgConnectOptions {
        let url = &self.url;
        let options = PgConnectOptions::new_without_pgpass()
            .port(url.port)
            .username(&url.user)
            .password(url.password.as_ref().map_or("", |password| password.reveal()))
            .database(&url.database)
            .ssl_mode(match url.ssl_mode {
                SslMode::Disable => PgSslMode::Disable,
                SslMode::Require => PgSslMode::Require,
                SslMode::VerifyCa => PgSslMode::VerifyCa,
                SslMode::VerifyFull => PgSslMode::VerifyFull,
            })
            .application_name("deskgate")
            .options([("search_path", SCHEMA), ("default_transaction_isolation", "read committed")])
            .disable_statement_logging();
        let options = match &url.host {
            PostgresHost::Name(name) => options.host(name),
            PostgresHost::Socket(folder) => options.socket(folder),
        };
        match &self.ca_file {
            Some(file) => options.ssl_root_cert(file),
            None => options,
        }
    }
}

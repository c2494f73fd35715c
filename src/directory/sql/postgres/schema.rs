//! The schema of a PostgreSQL directory: migrations under a lock, so that several gateways may start at once.

use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::settings::{PostgresSettings, SCHEMA};
use crate::directory::DirectoryError;
use crate::directory::sql::migrations::{POSTGRES, migrator};
use crate::directory::sql::unavailable;
use crate::domain::employee::EmployeeSource;

/// How long a start waits for the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a start waits for the migrations, its own and those of other gateways.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(300);

/// Checks the database and runs the migrations.
pub(super) async fn prepare(settings: &PostgresSettings) -> Result<(), DirectoryError> {
    let options = settings.for_migrations();
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, options.connect()).await;
    let mut connection = connected.map_err(|_| unavailable("the server does not answer"))?.map_err(unavailable)?;
    let migrated = tokio::time::timeout(MIGRATION_TIMEOUT, migrate(&mut connection, settings.employees)).await;
    migrated.map_err(|_| unavailable("the migrations did not end in time"))??;
    // Closing the connection also frees the lock.
    let _ = connection.close().await;
    Ok(())
}

async fn migrate(connection: &mut PgConnection, employees: EmployeeSource) -> Result<(), DirectoryError> {
    const ENCODING: &str = "SELECT current_setting('server_encoding')";
    let encoding: String = sqlx::query_scalar(ENCODING).fetch_one(&mut *connection).await.map_err(unavailable)?;
    if encoding != "UTF8" {
        let why = format!("the database's encoding is {encoding}; create it with ENCODING 'UTF8'");
        return Err(DirectoryError::Incompatible(why));
    }
    sqlx::query("SELECT pg_advisory_lock(1684370283, 1)").execute(&mut *connection).await.map_err(unavailable)?;
    match state(connection).await.map_err(unavailable)? {
        SchemaState::Absent => {
            sqlx::query("CREATE SCHEMA deskgate").execute(&mut *connection).await.map_err(unavailable)?;
        }
        SchemaState::Foreign => {
            return Err(DirectoryError::Incompatible(format!(
                "the schema {SCHEMA} holds tables that deskgate did not create; use another database, or rename the schema"
            )));
        }
        SchemaState::Own => {}
    }
    migrator(POSTGRES).run_direct(None, &mut *connection, false).await.map_err(migration_error)?;
    match employees {
        EmployeeSource::Own => Ok(()),
        EmployeeSource::Views => make_views(connection).await,
    }
}

/// Makes the views that add what is ours to what the help desk's views show.
async fn make_views(connection: &mut PgConnection) -> Result<(), DirectoryError> {
    const MISSING: &str = "SELECT string_agg('deskgate.' || name, ', ' ORDER BY name)
         FROM (VALUES ('desk_agents'), ('desk_employees'), ('desk_user_roles')) AS needed (name)
         WHERE to_regclass('deskgate.' || name) IS NULL";
    let missing: Option<String> = sqlx::query_scalar(MISSING).fetch_one(&mut *connection).await.map_err(unavailable)?;
    if let Some(missing) = missing {
        let why = format!("directory.employees = \"views\" needs views that are missing: {missing}");
        return Err(DirectoryError::Incompatible(why));
    }
    // `IF NOT EXISTS` would need the right to create schemas even where the schema exists.
    const ABSENT: &str = "SELECT to_regnamespace('deskgate_views') IS NULL";
    if sqlx::query_scalar(ABSENT).fetch_one(&mut *connection).await.map_err(unavailable)? {
        sqlx::query("CREATE SCHEMA deskgate_views").execute(&mut *connection).await.map_err(view_error)?;
    }
    let make = [
        include_str!("../../views/postgres.sql"),
        // Fails without the right to read what they show.
        "SELECT 1 FROM deskgate_views.employees, deskgate_views.user_roles, deskgate_views.agents LIMIT 1",
    ];
    for statements in make {
        sqlx::raw_sql(statements).execute(&mut *connection).await.map_err(view_error)?;
    }
    Ok(())
}

/// A view of the help desk that has other columns, or that may not be read, is the operator's mistake.
fn view_error(error: sqlx::Error) -> DirectoryError {
    match error.as_database_error() {
        Some(error) => {
            DirectoryError::Incompatible(format!("the help desk's views cannot be used: {}", error.message()))
        }
        None => unavailable(error),
    }
}

/// What the database has by the name of the schema.
enum SchemaState {
    Absent,
    /// Empty, or with tables of an earlier migration.
    Own,
    Foreign,
}

async fn state(connection: &mut PgConnection) -> Result<SchemaState, sqlx::Error> {
    const STATE: &str = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'deskgate'),
         EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace('deskgate') AND relkind = 'r'),
         to_regclass('deskgate._sqlx_migrations') IS NOT NULL";
    let (exists, has_tables, is_migrated): (bool, bool, bool) = sqlx::query_as(STATE).fetch_one(connection).await?;
    Ok(match (exists, has_tables, is_migrated) {
        (false, ..) => SchemaState::Absent,
        (true, true, false) => SchemaState::Foreign,
        (true, ..) => SchemaState::Own,
    })
}

/// Names the mistakes of an operator; other failures are the server's.
fn migration_error(error: MigrateError) -> DirectoryError {
    match error {
        MigrateError::VersionMissing(version) => DirectoryError::Incompatible(format!(
            "a newer deskgate has migrated the database (migration {version}); start that version, or restore a backup"
        )),
        MigrateError::VersionMismatch(version) => DirectoryError::Incompatible(format!(
            "migration {version} in the database is not this program's; the schema belongs to another program or build"
        )),
        error => unavailable(error),
    }
}

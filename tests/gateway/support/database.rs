//! The gateway's databases, behind its back.
//!
//! With `DESKGATE_TEST_DIRECTORY=postgres` every gateway whose test sets no directory has one on PostgreSQL. Tests that are
//! about SQLite say so with [`skipped_on_postgres`].

use deskgate::directory::sql::SqlDirectory;
use deskgate::domain::clock::Clock;
use sqlx::Connection;

use super::Gateway;
use crate::servers::postgres::{psql_in, settings};

/// Whether gateways have their directory on PostgreSQL unless their test says otherwise.
pub(super) fn is_on_postgres() -> bool {
    std::env::var("DESKGATE_TEST_DIRECTORY").is_ok_and(|engine| engine == "postgres")
}

/// Whether a test must end here because the directory is on PostgreSQL; says why.
pub fn skipped_on_postgres(why: &str) -> bool {
    if is_on_postgres() {
        eprintln!("skipped with a directory on PostgreSQL: {why}");
    }
    is_on_postgres()
}

impl Gateway {
    /// Runs SQL on a file of the data directory. A trigger changes what the gateway has read before it writes, at the same
    /// point every time, where a race would have to be lucky.
    pub async fn change_database(&self, file: &str, statements: &str) {
        let mut database = self.open_database(file).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut database).await.expect("a change");
    }

    /// The number that a query of one value finds in a file of the data directory.
    pub async fn read_database(&self, file: &str, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&mut self.open_database(file).await).await.expect("a number")
    }

    async fn open_database(&self, file: &str) -> sqlx::SqliteConnection {
        let url = format!("sqlite:{}", self.data_dir().join(file).display());
        sqlx::SqliteConnection::connect(&url).await.expect("a database")
    }

    /// The directory, beside a running gateway.
    pub async fn directory(&self) -> SqlDirectory {
        let directory = match self.directory_server() {
            Some(url) => SqlDirectory::connect(settings(&url), Clock::system()).await,
            None => SqlDirectory::open(&self.data_dir().join("directory.db"), Clock::system()).await,
        };
        directory.expect("the directory")
    }

    /// Runs SQL on the directory.
    pub async fn change_directory(&self, statements: &str) {
        match self.directory_server() {
            Some(url) => drop(psql_in(&url, &format!("SET search_path TO deskgate; {statements}"))),
            None => self.change_database("directory.db", statements).await,
        }
    }

    /// The texts that a query of one column finds in the directory.
    pub async fn read_directory(&self, query: &'static str) -> Vec<String> {
        let Some(url) = self.directory_server() else {
            let mut database = self.open_database("directory.db").await;
            return sqlx::query_scalar(query).fetch_all(&mut database).await.expect("texts");
        };
        psql_in(&url, &format!("SET search_path TO deskgate; {query}")).lines().map(str::to_owned).collect()
    }

    /// The URL of a directory on PostgreSQL.
    fn directory_server(&self) -> Option<String> {
        let settings: toml::Table = std::fs::read_to_string(self.config_file()).ok()?.parse().ok()?;
        let url = settings.get("directory")?.get("url")?.as_str()?;
        url.starts_with("postgres").then(|| url.to_owned())
    }
}

//! The gateway's databases, behind its back.

use sqlx::Connection;

use super::Gateway;

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
}

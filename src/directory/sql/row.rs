//! A row of either engine. Columns have the same types in both: text, 64-bit integers, and booleans of conditions.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Postgres, Row, Sqlite, Type};

/// A row that a statement returned.
pub(super) enum SqlRow {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl SqlRow {
    /// The value of a column, counted from 0.
    pub(super) fn get<'r, T>(&'r self, column: usize) -> T
    where
        T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            SqlRow::Sqlite(row) => row.get(column),
            SqlRow::Postgres(row) => row.get(column),
        }
    }
}

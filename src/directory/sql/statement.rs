//! A statement and its parameters, which each engine can run, and run again after a failure.

use sqlx::{SqlSafeStr, SqlStr};

/// A statement in the SQL that both engines share, with its parameters `$1`, `$2`, ….
#[derive(Clone)]
pub(super) struct Statement {
    pub(super) text: SqlStr,
    pub(super) values: Vec<SqlValue>,
    pub(super) reuse: Reuse,
}

/// A parameter. NULL has a type too, because PostgreSQL asks for it.
#[derive(Clone)]
pub(super) enum SqlValue {
    Text(Option<String>),
    Integer(Option<i64>),
}

/// Whether a connection keeps the prepared statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    Prepared,
    Once,
}

impl Statement {
    pub(super) fn new(text: impl SqlSafeStr) -> Self {
        Self { text: text.into_sql_str(), values: Vec::new(), reuse: Reuse::Prepared }
    }

    /// Adds the next parameter.
    pub(super) fn bind(mut self, value: impl Into<SqlValue>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(super) fn reuse(self, reuse: Reuse) -> Self {
        Self { reuse, ..self }
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        SqlValue::Text(Some(text.to_owned()))
    }
}

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        SqlValue::Text(Some(text))
    }
}

impl From<Option<&str>> for SqlValue {
    fn from(text: Option<&str>) -> Self {
        SqlValue::Text(text.map(str::to_owned))
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        SqlValue::Integer(Some(number))
    }
}

impl From<Option<i64>> for SqlValue {
    fn from(number: Option<i64>) -> Self {
        SqlValue::Integer(number)
    }
}

/// A count or a limit.
impl From<usize> for SqlValue {
    fn from(count: usize) -> Self {
        SqlValue::Integer(Some(i64::try_from(count).unwrap_or(i64::MAX)))
    }
}

/// Statements that take effect together or not at all.
#[derive(Clone)]
pub(super) struct Batch {
    pub(super) steps: Vec<BatchStep>,
    pub(super) order: Order,
}

#[derive(Clone)]
pub(super) enum BatchStep {
    Run(Statement),
    /// Ends the batch if it changes no row; what came before it stays.
    Guard(Statement),
}

impl BatchStep {
    pub(super) fn statement(&self) -> &Statement {
        match self {
            BatchStep::Run(statement) | BatchStep::Guard(statement) => statement,
        }
    }

    /// Whether the batch ends here, given how many rows the step changed.
    pub(super) fn ends_batch(&self, changed: u64) -> bool {
        matches!(self, BatchStep::Guard(_)) && changed == 0
    }
}

/// How a batch runs beside others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Its statements see rows that others change at the same time as they were before. Right for statements whose conditions
    /// concern only the row that they change: the engine locks it and checks them again.
    Concurrent,
    /// One after another over all gateways. Needed by conditions about other rows, such as "another administrator is
    /// left". SQLite has one writer, so there every batch runs like this.
    Exclusive,
}

impl Batch {
    pub(super) fn new(order: Order) -> Self {
        Self { steps: Vec::new(), order }
    }

    pub(super) fn run(mut self, statement: Statement) -> Self {
        self.steps.push(BatchStep::Run(statement));
        self
    }

    pub(super) fn guard(mut self, statement: Statement) -> Self {
        self.steps.push(BatchStep::Guard(statement));
        self
    }
}

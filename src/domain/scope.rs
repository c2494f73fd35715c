//! Whose records the matrix grants access to.

use http::HeaderValue;

use super::words;

words! {
    /// Whose records a grant covers; the upstream applies it.
    Scope {
        /// The caller's.
        Own = "own",
        /// The caller's department.
        Department = "department",
        /// Every employee.
        All = "all",
    }
}

impl Scope {
    /// The value of `X-Deskgate-Scope`.
    pub fn to_value(self) -> HeaderValue {
        HeaderValue::from_static(self.as_str())
    }
}

//! `[matrix.<role>]`

use toml::de::DeValue;

use super::{Loader, Table};
use crate::config::line_of;
use crate::domain::role::RoleName;
use crate::domain::scope::Scope;
use crate::rules::matrix::{DuplicateGrant, MatrixOperation, Resource};

impl Loader<'_> {
    /// Reads the grants of every role.
    pub(super) fn matrix(&mut self, table: Table<'_>) {
        let (file, text) = (table.file, table.text);
        let at = |place: std::ops::Range<usize>| line_of(text, place.start);
        for (role, resources) in table.table {
            let line = at(role.span());
            let name = role.get_ref().as_ref();
            if !RoleName::is_well_formed(name) {
                self.fault(file, line, format!("matrix: `{name}` is not a valid role name"));
                continue;
            }
            self.matrix.define(name);
            let DeValue::Table(resources) = resources.into_inner() else {
                self.fault(file, line, format!("matrix.{name}: write `[matrix.{name}]` with one line per resource"));
                continue;
            };
            for (resource, operations) in resources {
                let line = at(resource.span());
                let Some(known) = Resource::parse(resource.get_ref()) else {
                    self.unknown(file, line, &format!("matrix.{name}"), resource.get_ref(), Resource::WORDS);
                    continue;
                };
                let DeValue::Table(operations) = operations.into_inner() else {
                    self.fault(file, line, format!("matrix.{name}.{known}: write `{{ read = \"own\" }}`"));
                    continue;
                };
                for (operation, scope) in operations {
                    let line = at(operation.span());
                    let Some(done) = MatrixOperation::parse(operation.get_ref()) else {
                        let place = format!("matrix.{name}.{known}");
                        self.unknown(file, line, &place, operation.get_ref(), MatrixOperation::WORDS);
                        continue;
                    };
                    let place = format!("matrix.{name}.{known}.{done}");
                    match scope.into_inner() {
                        DeValue::String(word) => match Scope::parse(&word) {
                            Some(scope) => {
                                if let Err(DuplicateGrant) = self.matrix.grant(name, known, done, scope) {
                                    let why = format!("{place}: already granted in another file");
                                    self.fault(file, line, why);
                                }
                            }
                            None => self.unknown(file, line, &place, &word, Scope::WORDS),
                        },
                        _ => self.fault(file, line, format!("{place}: give one of {}", Scope::WORDS.join(", "))),
                    }
                }
            }
        }
    }

    /// Reports a value that is not one of `allowed`.
    pub(super) fn unknown(&mut self, file: &str, line: usize, place: &str, found: &str, allowed: &[&str]) {
        self.fault(file, line, format!("{place}: `{found}` is not one of {}", allowed.join(", ")));
    }
}

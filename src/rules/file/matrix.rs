//! `[matrix.<role>]`

use toml::de::DeValue;

use super::{Load, Table};
use crate::config::line_of;
use crate::domain::role::RoleName;
use crate::rules::matrix::{Operation, Resource, Scope, Twice};

impl Load<'_> {
    /// Every fault of a matrix names what was found and what is allowed.
    pub(super) fn matrix(&mut self, table: Table<'_>) {
        let (file, text) = (table.file, table.text);
        let at = |place: std::ops::Range<usize>| line_of(text, place.start);
        for (role, resources) in table.table {
            let line = at(role.span());
            let name = role.get_ref().as_ref();
            if !RoleName::is_well_formed(name) {
                self.fault(file, line, format!("matrix: `{name}` is not a role's name"));
                continue;
            }
            self.matrix.know(name);
            let DeValue::Table(resources) = resources.into_inner() else {
                self.fault(file, line, format!("matrix.{name}: write `[matrix.{name}]` with a line for each resource"));
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
                    let Some(done) = Operation::parse(operation.get_ref()) else {
                        let place = format!("matrix.{name}.{known}");
                        self.unknown(file, line, &place, operation.get_ref(), Operation::WORDS);
                        continue;
                    };
                    let place = format!("matrix.{name}.{known}.{done}");
                    match scope.into_inner() {
                        DeValue::String(word) => match Scope::parse(&word) {
                            Some(scope) => {
                                if let Err(Twice) = self.matrix.grant(name, known, done, scope) {
                                    let why =
                                        format!("{place}: granted in another file already; the order must not decide");
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

    /// A word that is not in its list.
    pub(super) fn unknown(&mut self, file: &str, line: usize, place: &str, found: &str, allowed: &[&str]) {
        self.fault(file, line, format!("{place}: `{found}` is not one of {}", allowed.join(", ")));
    }
}

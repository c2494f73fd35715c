//! Every text that people read in responses and on pages, in English and Chinese side by side.
//!
//! A row is a key and its two texts; `{name}` marks a placeholder. The rows are split by what they are for:
//! `errors`, `passwords` (advice on new passwords), `results` and `pages`. Log lines and CLI output are not here.

use std::time::Duration;

use crate::domain::language::Language;

/// Declares rows as constants of [`Message`], and lists them for the tests.
macro_rules! messages {
    ($($key:ident $english:literal $chinese:literal)*) => {
        impl super::Message {
            $(pub(crate) const $key: Self = row!($key $english $chinese);)*
        }

        #[cfg(test)]
        pub(super) const ROWS: &[super::Message] = &[$(super::Message::$key,)*];
    };
}

/// One row.
macro_rules! row {
    ($key:ident $english:literal $chinese:literal) => {
        $crate::messages::Message(&$crate::messages::Row {
            key: stringify!($key),
            english: $english,
            chinese: $chinese,
        })
    };
}

mod errors;

mod pages;

mod passwords;

mod results;

pub(crate) use pages::PAGE_MESSAGES;

#[derive(Debug, PartialEq, Eq)]
struct Row {
    key: &'static str,
    english: &'static str,
    chinese: &'static str,
}

/// A text in both languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message(&'static Row);

impl Message {
    /// The name of the row; page templates look texts up by it.
    pub fn key(self) -> &'static str {
        self.0.key
    }

    /// The text, with its placeholders unfilled.
    pub const fn text(self, language: Language) -> &'static str {
        match language {
            Language::English => self.0.english,
            Language::Chinese => self.0.chinese,
        }
    }

    /// The text with each `{name}` replaced by its value. Values are not scanned for placeholders.
    pub fn fill(self, language: Language, values: &[(&str, &str)]) -> String {
        let mut filled = String::new();
        let mut rest = self.text(language);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, tail) = after.split_once('}').unwrap_or((after, ""));
            let value = values.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value);
            filled.push_str(before);
            filled.push_str(value);
            rest = tail;
        }
        filled.push_str(rest);
        filled
    }
}

/// Joins items as the language does.
pub fn list(language: Language, items: &[&str]) -> String {
    items.join(match language {
        Language::English => ", ",
        Language::Chinese => "、",
    })
}

/// A waiting time in words: seconds below two minutes, then minutes. Rounded up, so that waiting that long is enough.
pub fn wait(language: Language, wait: Duration) -> String {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    let (message, count) = match seconds {
        1 => (Message::ONE_SECOND, seconds),
        2..120 => (Message::SECONDS, seconds),
        _ => (Message::MINUTES, seconds.div_ceil(60)),
    };
    message.fill(language, &[("count", &count.to_string())])
}

#[cfg(test)]
mod tests;

//! The languages of messages and pages.

use serde::{Deserialize, Serialize};

/// A language of messages and pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Language {
    /// English.
    #[default]
    #[serde(rename = "en")]
    English,
    /// Simplified Chinese.
    #[serde(rename = "zh-CN")]
    Chinese,
}

impl Language {
    /// The tag for `lang` and `Content-Language`.
    pub fn tag(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Chinese => "zh-CN",
        }
    }

    /// All languages.
    pub const ALL: [Language; 2] = [Language::English, Language::Chinese];

    /// The other language.
    pub fn other(self) -> Language {
        match self {
            Language::English => Language::Chinese,
            Language::Chinese => Language::English,
        }
    }

    /// Parses a language tag.
    pub fn tagged(tag: &str) -> Option<Language> {
        Language::ALL.into_iter().find(|language| language.tag() == tag)
    }

    /// The best match for an `Accept-Language` value by its weights; `fallback` if it names neither language.
    pub fn negotiate(accept: Option<&str>, fallback: Language) -> Language {
        let mut best: Option<(f32, Language)> = None;
        for entry in accept.unwrap_or_default().split(',').take(32) {
            let mut parts = entry.split(';');
            let tag = parts.next().unwrap_or_default().trim();
            let primary = tag.split(['-', '_']).next().unwrap_or_default();
            let language = match primary {
                p if p.eq_ignore_ascii_case("zh") => Language::Chinese,
                p if p.eq_ignore_ascii_case("en") => Language::English,
                _ => continue,
            };
            let weight = parts
                .find_map(|part| part.trim().strip_prefix("q="))
                .map_or(1.0, |q| q.trim().parse::<f32>().unwrap_or(0.0));
            if weight > 0.0 && best.is_none_or(|(top, _)| weight > top) {
                best = Some((weight, language));
            }
        }
        best.map_or(fallback, |(_, language)| language)
    }
}

#[cfg(test)]
mod tests;

//! Checks a new password, and chooses the advice for a rejected one.
//!
//! Checks length and strength only: no rules about digits and symbols, no forced changes (NIST SP 800-63B, 3.1.1.2).

use unicode_normalization::UnicodeNormalization;
use zxcvbn::feedback::{Feedback, Suggestion, Warning};
use zxcvbn::{Entropy, Score, zxcvbn};

use crate::domain::secret::Secret;
use crate::messages::Message;

/// Fewest characters of a password.
const MIN_LENGTH: usize = 8;

/// Most characters of a password.
const MAX_LENGTH: usize = 256;

/// Most bytes before normalising, so that a megabyte is rejected at no cost. Normalising makes one character of at most
/// twelve bytes, so no password of 256 characters has more.
const MAX_BYTES: usize = 12 * MAX_LENGTH;

/// Characters that zxcvbn gets. Its time grows with more than their square, and a password whose beginning is strong is
/// strong; one whose first 32 characters are easy to guess is rejected, whatever follows.
const SCORED_CHARACTERS: usize = 32;

/// Kinds of look-alike (`4` for `a`, `$` for `s`) that zxcvbn gets. It tries all their combinations, thousands with all
/// 20 kinds (1.2 s for 100 characters; with both limits 12 ms in the worst case found). A word that needs more kinds than
/// this to be spelled is no longer easy to guess.
const SCORED_LOOK_ALIKES: usize = 6;

/// zxcvbn's look-alikes.
const LOOK_ALIKES: &str = "4@8({[<3691!|70$5+%2";

/// Replacements for the look-alikes beyond [`SCORED_LOOK_ALIKES`]: symbols that resemble no letter, a different one for
/// each, so that the variety of the password is kept.
const NEUTRAL_SYMBOLS: [char; 14] = ['~', '^', '&', '*', '_', '-', '=', ':', ';', '"', ',', '.', '?', '>'];

/// Most hints, and most characters of each. Each hint costs one lookup, so the limits are generous.
const MAX_HINTS: usize = 16;
const MAX_HINT_LENGTH: usize = 64;

/// An acceptable new password, normalised. Its `Debug` prints `***`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPassword(Secret<String>);

impl NewPassword {
    /// Checks a new password. `hints` are words that others know or see: employee id, name, corporation, product name.
    pub fn check(text: &str, hints: &[&str]) -> Result<Self, PasswordFault> {
        let text = normalised(text)?;
        if text.chars().nth(MIN_LENGTH - 1).is_none() {
            return Err(PasswordFault::TooShort);
        }
        let scored = text_for_zxcvbn(&text);
        let words = words_of(hints);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let entropy = zxcvbn(&scored, &words);
        if !is_strong(&entropy) {
            // zxcvbn has no warning for a password that is weak only because of the hints.
            let about_you = is_strong(&zxcvbn(&scored, &[]));
            let advice = if about_you { Advice::NothingAboutYou } else { Advice::of(entropy.feedback()) };
            return Err(PasswordFault::TooWeak(advice));
        }
        Ok(Self(Secret::new(text)))
    }

    /// The password, for hashing.
    pub(super) fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

/// The form in which passwords are hashed: NFC, so that the same keys on another machine give the same password. Never
/// truncates: text that is too long or has control characters is rejected.
pub(super) fn normalised(text: &str) -> Result<String, PasswordFault> {
    if text.len() > MAX_BYTES {
        return Err(PasswordFault::TooLong);
    }
    let text: String = text.nfc().collect();
    if text.chars().nth(MAX_LENGTH).is_some() {
        return Err(PasswordFault::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(PasswordFault::ControlCharacter);
    }
    Ok(text)
}

/// Rejects text that is too long for any password.
pub(in crate::signin) fn check_length(text: &str) -> Result<(), PasswordFault> {
    match normalised(text) {
        Err(PasswordFault::TooLong) => Err(PasswordFault::TooLong),
        _ => Ok(()),
    }
}

fn is_strong(entropy: &Entropy) -> bool {
    entropy.score() >= Score::Three
}

/// The beginning of a password, in a form that zxcvbn scores in bounded time.
fn text_for_zxcvbn(text: &str) -> String {
    let mut kinds: Vec<char> = Vec::new();
    let mut scored = String::new();
    for character in text.chars().take(SCORED_CHARACTERS) {
        if !LOOK_ALIKES.contains(character) {
            scored.push(character);
            continue;
        }
        let kind = kinds.iter().position(|known| *known == character).unwrap_or_else(|| {
            kinds.push(character);
            kinds.len() - 1
        });
        scored.push(match kind.checked_sub(SCORED_LOOK_ALIKES) {
            None => character,
            // There are as many symbols as look-alikes to replace; the remainder keeps the index in bounds.
            Some(beyond) => NEUTRAL_SYMBOLS[beyond % NEUTRAL_SYMBOLS.len()],
        });
    }
    scored
}

/// The words that users make passwords of: `Alice Chen` is also `Alice`, `Chen` and `AliceChen`.
fn words_of(hints: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    for hint in hints.iter().take(MAX_HINTS) {
        let hint: String = hint.nfc().take(MAX_HINT_LENGTH).collect();
        let parts: Vec<&str> = hint.split(|letter: char| !letter.is_alphanumeric()).collect();
        words.push(parts.concat());
        words.extend(parts.into_iter().map(str::to_owned));
        words.push(hint);
    }
    // Two Latin letters are too short for a hint; two Chinese characters are a name.
    words.retain(|word| word.len() > 2);
    words.sort_unstable();
    words.dedup();
    words
}

/// Why a password is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordFault {
    /// Fewer than 8 characters.
    #[error("the password is too short")]
    TooShort,
    /// More than 256 characters.
    #[error("the password is too long")]
    TooLong,
    /// NUL, a line break or another control character.
    #[error("the password contains control characters")]
    ControlCharacter,
    /// Too easy to guess.
    #[error("the password is too weak")]
    TooWeak(Advice),
}

impl PasswordFault {
    /// The message for the user.
    pub fn message(self) -> Message {
        match self {
            PasswordFault::TooShort => Message::PASSWORD_TOO_SHORT,
            PasswordFault::TooLong => Message::PASSWORD_TOO_LONG,
            PasswordFault::ControlCharacter => Message::PASSWORD_CONTROL,
            PasswordFault::TooWeak(advice) => advice.message(),
        }
    }
}

/// What makes a password weak and how to improve it, from zxcvbn's feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Too short, but otherwise fine.
    AddWords,
    /// Adjacent keys.
    NoKeyboardPattern,
    /// Repetition.
    NoRepeats,
    /// `abcd`, `6543`.
    NoSequence,
    /// A common password, or similar to one.
    NoCommonPassword,
    /// A single dictionary word.
    NoSingleWord,
    /// Personal names.
    NoNames,
    /// A year or a date.
    NoDates,
    /// A leading capital, or all capitals.
    CapitalsHelpLittle,
    /// `@` for `a`.
    SubstitutionsHelpLittle,
    /// A reversed word.
    ReversingHelpsLittle,
    /// The user's name or id, the corporation or the product.
    NothingAboutYou,
}

impl Advice {
    /// Every advice, for the test of the translations.
    #[cfg(test)]
    pub(super) const ALL: [Advice; 12] = [
        Advice::AddWords,
        Advice::NoKeyboardPattern,
        Advice::NoRepeats,
        Advice::NoSequence,
        Advice::NoCommonPassword,
        Advice::NoSingleWord,
        Advice::NoNames,
        Advice::NoDates,
        Advice::CapitalsHelpLittle,
        Advice::SubstitutionsHelpLittle,
        Advice::ReversingHelpsLittle,
        Advice::NothingAboutYou,
    ];

    /// The most useful advice: zxcvbn's warning, else its last suggestion. The first suggestion is always to add words,
    /// which every message says anyway.
    fn of(feedback: Option<&Feedback>) -> Self {
        let warning = feedback.and_then(Feedback::warning).map(Self::of_warning);
        let suggestion = feedback.and_then(|feedback| feedback.suggestions().last().copied());
        warning.or_else(|| suggestion.map(Self::of_suggestion)).unwrap_or(Advice::AddWords)
    }

    fn of_warning(warning: Warning) -> Self {
        match warning {
            Warning::StraightRowsOfKeysAreEasyToGuess | Warning::ShortKeyboardPatternsAreEasyToGuess => {
                Advice::NoKeyboardPattern
            }
            Warning::RepeatsLikeAaaAreEasyToGuess | Warning::RepeatsLikeAbcAbcAreOnlySlightlyHarderToGuess => {
                Advice::NoRepeats
            }
            Warning::ThisIsATop10Password
            | Warning::ThisIsATop100Password
            | Warning::ThisIsACommonPassword
            | Warning::ThisIsSimilarToACommonlyUsedPassword => Advice::NoCommonPassword,
            Warning::SequencesLikeAbcAreEasyToGuess => Advice::NoSequence,
            Warning::RecentYearsAreEasyToGuess | Warning::DatesAreOftenEasyToGuess => Advice::NoDates,
            Warning::AWordByItselfIsEasyToGuess => Advice::NoSingleWord,
            Warning::NamesAndSurnamesByThemselvesAreEasyToGuess | Warning::CommonNamesAndSurnamesAreEasyToGuess => {
                Advice::NoNames
            }
        }
    }

    fn of_suggestion(suggestion: Suggestion) -> Self {
        match suggestion {
            Suggestion::UseAFewWordsAvoidCommonPhrases
            | Suggestion::NoNeedForSymbolsDigitsOrUppercaseLetters
            | Suggestion::AddAnotherWordOrTwo => Advice::AddWords,
            Suggestion::CapitalizationDoesntHelpVeryMuch
            | Suggestion::AllUppercaseIsAlmostAsEasyToGuessAsAllLowercase => Advice::CapitalsHelpLittle,
            Suggestion::ReversedWordsArentMuchHarderToGuess => Advice::ReversingHelpsLittle,
            Suggestion::PredictableSubstitutionsDontHelpVeryMuch => Advice::SubstitutionsHelpLittle,
            Suggestion::UseALongerKeyboardPatternWithMoreTurns => Advice::NoKeyboardPattern,
            Suggestion::AvoidRepeatedWordsAndCharacters => Advice::NoRepeats,
            Suggestion::AvoidSequences => Advice::NoSequence,
            Suggestion::AvoidRecentYears
            | Suggestion::AvoidYearsThatAreAssociatedWithYou
            | Suggestion::AvoidDatesAndYearsThatAreAssociatedWithYou => Advice::NoDates,
        }
    }

    /// The message for the user.
    pub fn message(self) -> Message {
        match self {
            Advice::AddWords => Message::PASSWORD_ADD_WORDS,
            Advice::NoKeyboardPattern => Message::PASSWORD_NO_KEYBOARD_PATTERN,
            Advice::NoRepeats => Message::PASSWORD_NO_REPEATS,
            Advice::NoSequence => Message::PASSWORD_NO_SEQUENCE,
            Advice::NoCommonPassword => Message::PASSWORD_NO_COMMON_PASSWORD,
            Advice::NoSingleWord => Message::PASSWORD_NO_SINGLE_WORD,
            Advice::NoNames => Message::PASSWORD_NO_NAMES,
            Advice::NoDates => Message::PASSWORD_NO_DATES,
            Advice::CapitalsHelpLittle => Message::PASSWORD_CAPITALS_HELP_LITTLE,
            Advice::SubstitutionsHelpLittle => Message::PASSWORD_SUBSTITUTIONS_HELP_LITTLE,
            Advice::ReversingHelpsLittle => Message::PASSWORD_REVERSING_HELPS_LITTLE,
            Advice::NothingAboutYou => Message::PASSWORD_NOTHING_ABOUT_YOU,
        }
    }
}

#[cfg(test)]
mod tests;

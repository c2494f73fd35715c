//! Whether a text may become somebody's password, and what to tell them if not.
//!
//! Length and strength, and nothing else: no rules about digits and symbols, no forced changes (NIST SP 800-63B, 3.1.1.2).

use unicode_normalization::UnicodeNormalization;
use zxcvbn::feedback::{Feedback, Suggestion, Warning};
use zxcvbn::{Entropy, Score, zxcvbn};

use crate::domain::secret::Secret;
use crate::messages::Message;

/// Characters that a password has at least.
const SHORTEST: usize = 8;

/// Characters that a password has at most.
const LONGEST: usize = 256;

/// Bytes that are looked at before anything else is done, so that a megabyte costs nothing. Normalising makes one
/// character of at most twelve bytes: nothing that ends at 256 characters begins with more than this.
const MOST_BYTES: usize = 12 * LONGEST;

/// Characters that zxcvbn sees. Its time grows with more than their square, and a password whose beginning is
/// strong is strong; one whose first 32 characters are easy to guess is refused, whatever follows.
const JUDGED: usize = 32;

/// Kinds of look-alike (`4` for `a`, `$` for `s`) that zxcvbn sees: it tries all their combinations, which with all
/// 20 kinds are thousands (1.2 s for 100 characters; with both bounds 12 ms for the worst that was found). Words
/// that need more kinds than this to be spelled are no longer easy to guess.
const JUDGED_LOOK_ALIKES: usize = 6;

/// zxcvbn's look-alikes.
const LOOK_ALIKES: &str = "4@8({[<3691!|70$5+%2";

/// What the look-alikes beyond [`JUDGED_LOOK_ALIKES`] are judged as: symbols that look like nothing, one for each,
/// so that what is varied stays varied.
const PLAIN: [char; 14] = ['~', '^', '&', '*', '_', '-', '=', ':', ';', '"', ',', '.', '?', '>'];

/// Hints that are taken note of, and characters of each. Each is looked up once, so these are generous.
const MOST_HINTS: usize = 16;
const LONGEST_HINT: usize = 64;

/// A password that may be set: normalised and strong enough. Its `Debug` prints `***`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPassword(Secret<String>);

impl NewPassword {
    /// Checks a text that somebody wants as password. `hints` is what others know about them or see on the page:
    /// employee id, name, corporation, product name.
    pub fn check(text: &str, hints: &[&str]) -> Result<Self, PasswordFault> {
        let text = normalised(text)?;
        if text.chars().nth(SHORTEST - 1).is_none() {
            return Err(PasswordFault::TooShort);
        }
        let seen = seen_by_zxcvbn(&text);
        let words = words_of(hints);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let judged = zxcvbn(&seen, &words);
        if !is_strong(&judged) {
            // Strong but for the hints: zxcvbn has no word for that.
            let about_you = is_strong(&zxcvbn(&seen, &[]));
            let advice = if about_you { Advice::NothingAboutYou } else { Advice::of(judged.feedback()) };
            return Err(PasswordFault::TooWeak(advice));
        }
        Ok(Self(Secret::new(text)))
    }

    /// The text, for hashing.
    pub(super) fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

/// The form in which passwords are hashed: NFC, so that the same keys on another machine give the same password.
/// Never cut: what is too long, or holds what no keyboard types, is no password at all.
pub(super) fn normalised(text: &str) -> Result<String, PasswordFault> {
    if text.len() > MOST_BYTES {
        return Err(PasswordFault::TooLong);
    }
    let text: String = text.nfc().collect();
    if text.chars().nth(LONGEST).is_some() {
        return Err(PasswordFault::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(PasswordFault::ControlCharacter);
    }
    Ok(text)
}

/// Refuses what is too long for any password.
pub(in crate::signin) fn check_length(text: &str) -> Result<(), PasswordFault> {
    match normalised(text) {
        Err(PasswordFault::TooLong) => Err(PasswordFault::TooLong),
        _ => Ok(()),
    }
}

fn is_strong(judged: &Entropy) -> bool {
    judged.score() >= Score::Three
}

/// The beginning of a password in the form in which judging it takes a bounded time.
fn seen_by_zxcvbn(text: &str) -> String {
    let mut kept: Vec<char> = Vec::new();
    let mut judged = String::new();
    for character in text.chars().take(JUDGED) {
        if !LOOK_ALIKES.contains(character) {
            judged.push(character);
            continue;
        }
        let kind = kept.iter().position(|known| *known == character).unwrap_or_else(|| {
            kept.push(character);
            kept.len() - 1
        });
        judged.push(match kind.checked_sub(JUDGED_LOOK_ALIKES) {
            None => character,
            // There are as many plain symbols as look-alikes to replace; the remainder keeps that true for ever.
            Some(beyond) => PLAIN[beyond % PLAIN.len()],
        });
    }
    judged
}

/// Hints as the words that people make passwords of: `Lin Xiaoyu` is also `Lin`, `Xiaoyu` and `LinXiaoyu`.
fn words_of(hints: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    for hint in hints.iter().take(MOST_HINTS) {
        let hint: String = hint.nfc().take(LONGEST_HINT).collect();
        let parts: Vec<&str> = hint.split(|letter: char| !letter.is_alphanumeric()).collect();
        words.push(parts.concat());
        words.extend(parts.into_iter().map(str::to_owned));
        words.push(hint);
    }
    // Two letters of ours say nothing about a password; two of Chinese are a name.
    words.retain(|word| word.len() > 2);
    words.sort_unstable();
    words.dedup();
    words
}

/// Why a text cannot be a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordFault {
    /// Fewer than 8 characters.
    #[error("the password is too short")]
    TooShort,
    /// More than 256 characters.
    #[error("the password is too long")]
    TooLong,
    /// Holds NUL, a line end, or another control character.
    #[error("the password holds control characters")]
    ControlCharacter,
    /// Too easy to guess.
    #[error("the password is too weak")]
    TooWeak(Advice),
}

impl PasswordFault {
    /// What to tell the person.
    pub fn message(self) -> Message {
        match self {
            PasswordFault::TooShort => Message::PASSWORD_TOO_SHORT,
            PasswordFault::TooLong => Message::PASSWORD_TOO_LONG,
            PasswordFault::ControlCharacter => Message::PASSWORD_CONTROL,
            PasswordFault::TooWeak(advice) => advice.message(),
        }
    }
}

/// What makes a password easy to guess, and so what to do: zxcvbn's findings in our words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Add a word or two: nothing else is wrong with it.
    AddWords,
    /// Keys that lie side by side.
    NoKeyboardPattern,
    /// The same again and again.
    NoRepeats,
    /// `abcd`, `6543`.
    NoSequence,
    /// One of the most used passwords, or nearly.
    NoCommonPassword,
    /// One word of a dictionary.
    NoSingleWord,
    /// Names of people.
    NoNames,
    /// A year or a date.
    NoDates,
    /// A capital at the beginning, or all capitals.
    CapitalsHelpLittle,
    /// `@` for `a`.
    SubstitutionsHelpLittle,
    /// A word backwards.
    ReversingHelpsLittle,
    /// The person's own name or id, the corporation, the product.
    NothingAboutYou,
}

impl Advice {
    /// All, for whoever translates.
    pub const ALL: [Advice; 12] = [
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

    /// The one thing to say of zxcvbn's findings: what is wrong, else the last suggestion. The first is always to
    /// add words, which every text of ours says anyway.
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

    /// What to tell the person.
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

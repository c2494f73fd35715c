//! The tree of a condition. It is typed, so that only a pattern can fail at evaluation.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use super::pattern::Regex;
use super::{IdentityVariables, LONGEST_FIELD, LONGEST_PATH, LONGEST_ROLE, MOST_ROLES};
use crate::domain::path::fold_case;

/// The bytes of a string that cost as much as one node.
const BYTES_PER_UNIT: usize = 8;

/// The variables of a condition.
pub(super) struct Variables<'a> {
    pub identity: IdentityVariables<'a>,
    pub method: &'a str,
    pub path: &'a str,
    /// Empty unless the condition reads it.
    pub address: &'a str,
}

/// A field of type string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    EmployeeId,
    Name,
    CorpId,
    Department,
    CurrentRole,
    LoginSource,
    LoginMethod,
    Method,
    Path,
    Address,
}

impl Field {
    pub(super) const IDENTITY: [(&str, Field); 7] = [
        ("employee_id", Field::EmployeeId),
        ("name", Field::Name),
        ("corp_id", Field::CorpId),
        ("department", Field::Department),
        ("current_role", Field::CurrentRole),
        ("login_source", Field::LoginSource),
        ("login_method", Field::LoginMethod),
    ];

    pub(super) const REQUEST: [(&str, Field); 3] =
        [("method", Field::Method), ("path", Field::Path), ("address", Field::Address)];

    pub(super) fn read<'a>(self, variables: &Variables<'a>) -> &'a str {
        match self {
            Field::EmployeeId => variables.identity.employee_id,
            Field::Name => variables.identity.name,
            Field::CorpId => variables.identity.corp_id,
            Field::Department => variables.identity.department,
            Field::CurrentRole => variables.identity.current_role,
            Field::LoginSource => variables.identity.login_source,
            Field::LoginMethod => variables.identity.login_method,
            Field::Method => variables.method,
            Field::Path => variables.path,
            Field::Address => variables.address,
        }
    }

    pub(super) fn longest(self) -> usize {
        if self == Field::Path { LONGEST_PATH } else { LONGEST_FIELD }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = |(_, field): &&(&str, Field)| field == self;
        if let Some((name, _)) = Self::REQUEST.iter().find(own) {
            return write!(f, "request.{name}");
        }
        write!(f, "identity.{}", Self::IDENTITY.iter().find(own).map_or("", |(name, _)| name))
    }
}

/// The variables, and the current elements of the enclosing `exists` and `all`.
#[derive(Clone, Copy)]
pub(super) struct Bindings<'a> {
    variables: &'a Variables<'a>,
    element: Option<&'a Element<'a>>,
}

struct Element<'a> {
    value: &'a str,
    around: Option<&'a Element<'a>>,
}

impl<'a> Bindings<'a> {
    pub(super) fn of(variables: &'a Variables<'a>) -> Self {
        Self { variables, element: None }
    }
}

/// An expression of type string.
pub(super) enum Text {
    Literal(Box<str>),
    Field(Field),
    /// The element of the `exists` or `all` that is `outward` levels up.
    Element {
        outward: usize,
        longest: usize,
    },
    /// What is compared with a path whose case is folded.
    Folded(Box<Text>),
}

impl Text {
    /// The text with its case folded, for comparisons with the path.
    pub(super) fn folded(self) -> Self {
        match self {
            Text::Literal(text) => Text::Literal(fold_case(&text).into()),
            path @ Text::Field(Field::Path) => path,
            other => Text::Folded(Box::new(other)),
        }
    }

    fn read<'a>(&'a self, bindings: Bindings<'a>) -> Cow<'a, str> {
        match self {
            Text::Literal(text) => Cow::Borrowed(text),
            Text::Field(field) => Cow::Borrowed(field.read(bindings.variables)),
            Text::Folded(text) => Cow::Owned(fold_case(&text.read(bindings)).into_owned()),
            Text::Element { outward, .. } => {
                let mut element = bindings.element;
                for _ in 0..*outward {
                    element = element.and_then(|element| element.around);
                }
                // Always present: the compiler resolves names inside their `exists` or `all` only.
                Cow::Borrowed(element.map_or("", |element| element.value))
            }
        }
    }

    pub(super) fn longest(&self) -> usize {
        match self {
            Text::Literal(text) => text.len(),
            Text::Field(field) => field.longest(),
            Text::Element { longest, .. } => *longest,
            // Folding copies the text, and may lengthen it by half.
            Text::Folded(text) => text.longest() * 2,
        }
    }
}

/// An expression of type integer.
pub(super) enum Number {
    Literal(i64),
    /// The number of characters.
    Length(Text),
    /// The number of elements.
    Count(List),
}

impl Number {
    fn read(&self, bindings: Bindings<'_>) -> i64 {
        let size = match self {
            Number::Literal(number) => return *number,
            Number::Length(text) => text.read(bindings).chars().count(),
            Number::Count(List::Roles) => bindings.variables.identity.roles.len(),
            Number::Count(List::Texts(texts)) => texts.len(),
        };
        i64::try_from(size).unwrap_or(i64::MAX)
    }

    fn cost(&self) -> u64 {
        match self {
            Number::Literal(_) | Number::Count(_) => 1,
            Number::Length(text) => 2 + units(text.longest()),
        }
    }
}

/// An expression of type list of strings.
pub(super) enum List {
    Roles,
    Texts(Vec<Text>),
}

impl List {
    /// The list with the case of its texts folded, for comparisons with the path.
    pub(super) fn folded(self) -> Self {
        match self {
            // No role begins with a slash.
            List::Roles => List::Roles,
            List::Texts(texts) => List::Texts(texts.into_iter().map(Text::folded).collect()),
        }
    }

    fn elements<'a>(&'a self, bindings: Bindings<'a>) -> impl Iterator<Item = Cow<'a, str>> {
        (0..).map_while(move |index: usize| match self {
            List::Roles => bindings.variables.identity.roles.get(index).map(|role| Cow::Borrowed(*role)),
            List::Texts(texts) => texts.get(index).map(|text| text.read(bindings)),
        })
    }

    fn most_elements(&self) -> u64 {
        match self {
            List::Roles => MOST_ROLES as u64,
            List::Texts(texts) => texts.len() as u64,
        }
    }

    pub(super) fn longest(&self) -> usize {
        match self {
            List::Roles => LONGEST_ROLE,
            List::Texts(texts) => texts.iter().map(Text::longest).max().unwrap_or(0),
        }
    }
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Unequal,
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Relation {
    fn fits(self, ordering: Ordering) -> bool {
        match self {
            Relation::Equal => ordering.is_eq(),
            Relation::Unequal => ordering.is_ne(),
            Relation::Below => ordering.is_lt(),
            Relation::AtMost => ordering.is_le(),
            Relation::Above => ordering.is_gt(),
            Relation::AtLeast => ordering.is_ge(),
        }
    }
}

/// Where one string occurs in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextPart {
    Start,
    End,
    Anywhere,
}

/// An expression of type boolean.
pub(super) enum Test {
    Literal(bool),
    Not(Box<Test>),
    Both(Box<[Test; 2]>),
    Either(Box<[Test; 2]>),
    /// `first ? second : third`
    Choice(Box<[Test; 3]>),
    Texts(Relation, Text, Text),
    Numbers(Relation, Number, Number),
    Truths(Relation, Box<[Test; 2]>),
    Among(Text, List),
    /// Whether the first string has the second in that place.
    Part(TextPart, Text, Text),
    Matches(Text, Box<Regex>),
    Exists(List, Box<Test>),
    All(List, Box<Test>),
}

impl Test {
    pub(super) fn holds(&self, bindings: Bindings<'_>) -> Result<bool, String> {
        Ok(match self {
            Test::Literal(truth) => *truth,
            Test::Not(test) => !test.holds(bindings)?,
            Test::Both(tests) => tests[0].holds(bindings)? && tests[1].holds(bindings)?,
            Test::Either(tests) => tests[0].holds(bindings)? || tests[1].holds(bindings)?,
            Test::Choice(tests) => {
                if tests[0].holds(bindings)? {
                    tests[1].holds(bindings)?
                } else {
                    tests[2].holds(bindings)?
                }
            }
            Test::Texts(Relation::Equal, left, right) => left.read(bindings) == right.read(bindings),
            Test::Texts(Relation::Unequal, left, right) => left.read(bindings) != right.read(bindings),
            Test::Texts(relation, left, right) => relation.fits(left.read(bindings).cmp(&right.read(bindings))),
            Test::Numbers(relation, left, right) => relation.fits(left.read(bindings).cmp(&right.read(bindings))),
            Test::Truths(relation, tests) => relation.fits(tests[0].holds(bindings)?.cmp(&tests[1].holds(bindings)?)),
            Test::Among(text, list) => {
                let text = text.read(bindings);
                list.elements(bindings).any(|element| element == text)
            }
            Test::Part(TextPart::Start, text, part) => text.read(bindings).starts_with(&*part.read(bindings)),
            Test::Part(TextPart::End, text, part) => text.read(bindings).ends_with(&*part.read(bindings)),
            Test::Part(TextPart::Anywhere, text, part) => text.read(bindings).contains(&*part.read(bindings)),
            Test::Matches(text, pattern) => pattern.is_match(&text.read(bindings))?,
            Test::Exists(list, body) => any(list, bindings, |bindings| body.holds(bindings))?,
            Test::All(list, body) => !any(list, bindings, |bindings| body.holds(bindings).map(|holds| !holds))?,
        })
    }

    /// The worst-case cost, in units of one node.
    pub(super) fn cost(&self) -> u64 {
        let below = match self {
            Test::Literal(_) => 0,
            Test::Not(test) => test.cost(),
            Test::Both(tests) | Test::Either(tests) | Test::Truths(_, tests) => sum(tests.as_slice()),
            Test::Choice(tests) => sum(tests.as_slice()),
            Test::Texts(_, left, right) | Test::Part(TextPart::Start | TextPart::End, left, right) => {
                2 + units(left.longest().min(right.longest()))
            }
            Test::Numbers(_, left, right) => left.cost().saturating_add(right.cost()),
            Test::Among(text, list) => {
                list.most_elements().saturating_mul(1 + units(text.longest().min(list.longest()))).saturating_add(2)
            }
            Test::Part(TextPart::Anywhere, text, part) => 2 + units(text.longest()) + units(part.longest()),
            Test::Matches(text, _) => 2 + units(text.longest()),
            Test::Exists(list, body) | Test::All(list, body) => {
                list.most_elements().saturating_mul(body.cost().saturating_add(1)).saturating_add(1)
            }
        };
        below.saturating_add(1)
    }
}

/// Whether the body holds for at least one element.
fn any(
    list: &List,
    bindings: Bindings<'_>,
    body: impl Fn(Bindings<'_>) -> Result<bool, String>,
) -> Result<bool, String> {
    for value in list.elements(bindings) {
        let element = Element { value: &value, around: bindings.element };
        if body(Bindings { variables: bindings.variables, element: Some(&element) })? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn sum(tests: &[Test]) -> u64 {
    tests.iter().fold(0, |sum, test| sum.saturating_add(test.cost()))
}

fn units(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_UNIT) as u64
}

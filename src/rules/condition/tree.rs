//! The tree of a condition: typed, so that nothing can fail when it is evaluated but a pattern.

use std::cmp::Ordering;
use std::fmt;

use super::pattern::Pattern;
use super::{IdentityFacts, LONGEST_FIELD, LONGEST_PATH, LONGEST_ROLE, MOST_ROLES};

/// How many bytes of a text cost as much as a node.
const BYTES_PER_UNIT: usize = 8;

/// All that a condition can look at.
pub(super) struct Facts<'a> {
    pub identity: IdentityFacts<'a>,
    pub method: &'a str,
    pub path: &'a str,
    /// Empty unless the condition reads it.
    pub address: &'a str,
}

/// A field that is a text.
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

    pub(super) fn read<'a>(self, facts: &Facts<'a>) -> &'a str {
        match self {
            Field::EmployeeId => facts.identity.employee_id,
            Field::Name => facts.identity.name,
            Field::CorpId => facts.identity.corp_id,
            Field::Department => facts.identity.department,
            Field::CurrentRole => facts.identity.current_role,
            Field::LoginSource => facts.identity.login_source,
            Field::LoginMethod => facts.identity.login_method,
            Field::Method => facts.method,
            Field::Path => facts.path,
            Field::Address => facts.address,
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

/// The facts, and the elements at which the `exists` and `all` around are.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    facts: &'a Facts<'a>,
    element: Option<&'a Element<'a>>,
}

struct Element<'a> {
    value: &'a str,
    around: Option<&'a Element<'a>>,
}

impl<'a> View<'a> {
    pub(super) fn of(facts: &'a Facts<'a>) -> Self {
        Self { facts, element: None }
    }
}

/// What yields a text.
pub(super) enum Text {
    Literal(Box<str>),
    Field(Field),
    /// The element of the `exists` or `all` so many levels out.
    Element {
        outward: usize,
        longest: usize,
    },
}

impl Text {
    fn read<'a>(&'a self, view: View<'a>) -> &'a str {
        match self {
            Text::Literal(text) => text,
            Text::Field(field) => field.read(view.facts),
            Text::Element { outward, .. } => {
                let mut element = view.element;
                for _ in 0..*outward {
                    element = element.and_then(|element| element.around);
                }
                // There always is one: a name is only read inside of what declares it.
                element.map_or("", |element| element.value)
            }
        }
    }

    pub(super) fn longest(&self) -> usize {
        match self {
            Text::Literal(text) => text.len(),
            Text::Field(field) => field.longest(),
            Text::Element { longest, .. } => *longest,
        }
    }
}

/// What yields a whole number.
pub(super) enum Number {
    Literal(i64),
    /// Of characters.
    Length(Text),
    /// Of elements.
    Count(List),
}

impl Number {
    fn read(&self, view: View<'_>) -> i64 {
        let size = match self {
            Number::Literal(number) => return *number,
            Number::Length(text) => text.read(view).chars().count(),
            Number::Count(List::Roles) => view.facts.identity.roles.len(),
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

/// What yields texts.
pub(super) enum List {
    Roles,
    Texts(Vec<Text>),
}

impl List {
    fn elements<'a>(&'a self, view: View<'a>) -> impl Iterator<Item = &'a str> {
        (0..).map_while(move |index: usize| match self {
            List::Roles => view.facts.identity.roles.get(index).copied(),
            List::Texts(texts) => texts.get(index).map(|text| text.read(view)),
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

/// How two values are compared.
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

/// Which part of a text another one has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Start,
    End,
    Anywhere,
}

/// What yields true or false.
pub(super) enum Test {
    Literal(bool),
    Not(Box<Test>),
    Both(Box<[Test; 2]>),
    Either(Box<[Test; 2]>),
    /// If the first, then the second, else the third.
    Choice(Box<[Test; 3]>),
    Texts(Relation, Text, Text),
    Numbers(Relation, Number, Number),
    Truths(Relation, Box<[Test; 2]>),
    Among(Text, List),
    /// Whether the second text is that part of the first.
    Part(Part, Text, Text),
    Matches(Text, Box<Pattern>),
    Exists(List, Box<Test>),
    All(List, Box<Test>),
}

impl Test {
    pub(super) fn holds(&self, view: View<'_>) -> Result<bool, String> {
        Ok(match self {
            Test::Literal(truth) => *truth,
            Test::Not(test) => !test.holds(view)?,
            Test::Both(tests) => tests[0].holds(view)? && tests[1].holds(view)?,
            Test::Either(tests) => tests[0].holds(view)? || tests[1].holds(view)?,
            Test::Choice(tests) => {
                if tests[0].holds(view)? {
                    tests[1].holds(view)?
                } else {
                    tests[2].holds(view)?
                }
            }
            Test::Texts(Relation::Equal, left, right) => left.read(view) == right.read(view),
            Test::Texts(Relation::Unequal, left, right) => left.read(view) != right.read(view),
            Test::Texts(relation, left, right) => relation.fits(left.read(view).cmp(right.read(view))),
            Test::Numbers(relation, left, right) => relation.fits(left.read(view).cmp(&right.read(view))),
            Test::Truths(relation, tests) => relation.fits(tests[0].holds(view)?.cmp(&tests[1].holds(view)?)),
            Test::Among(text, list) => {
                let text = text.read(view);
                list.elements(view).any(|element| element == text)
            }
            Test::Part(Part::Start, text, part) => text.read(view).starts_with(part.read(view)),
            Test::Part(Part::End, text, part) => text.read(view).ends_with(part.read(view)),
            Test::Part(Part::Anywhere, text, part) => text.read(view).contains(part.read(view)),
            Test::Matches(text, pattern) => pattern.is_in(text.read(view))?,
            Test::Exists(list, body) => any(list, view, |view| body.holds(view))?,
            Test::All(list, body) => !any(list, view, |view| body.holds(view).map(|holds| !holds))?,
        })
    }

    /// The worst case, in units of one node.
    pub(super) fn cost(&self) -> u64 {
        let below = match self {
            Test::Literal(_) => 0,
            Test::Not(test) => test.cost(),
            Test::Both(tests) | Test::Either(tests) | Test::Truths(_, tests) => sum(tests.as_slice()),
            Test::Choice(tests) => sum(tests.as_slice()),
            Test::Texts(_, left, right) | Test::Part(Part::Start | Part::End, left, right) => {
                2 + units(left.longest().min(right.longest()))
            }
            Test::Numbers(_, left, right) => left.cost().saturating_add(right.cost()),
            Test::Among(text, list) => {
                list.most_elements().saturating_mul(1 + units(text.longest().min(list.longest()))).saturating_add(2)
            }
            Test::Part(Part::Anywhere, text, part) => 2 + units(text.longest()) + units(part.longest()),
            Test::Matches(text, _) => 2 + units(text.longest()),
            Test::Exists(list, body) | Test::All(list, body) => {
                list.most_elements().saturating_mul(body.cost().saturating_add(1)).saturating_add(1)
            }
        };
        below.saturating_add(1)
    }
}

/// Whether the body holds for one element at least.
fn any(list: &List, view: View<'_>, body: impl Fn(View<'_>) -> Result<bool, String>) -> Result<bool, String> {
    for value in list.elements(view) {
        let element = Element { value, around: view.element };
        if body(View { facts: view.facts, element: Some(&element) })? {
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

//! Compiles a condition: the `cel` crate parses it, this module checks the type of every node.

use cel::Env;
use cel::common::ast::{CallExpr, Expr, IdedExpr, ListExpr, LiteralValue, SelectExpr, operators};

use super::pattern::Regex;
use super::tree::{Field, List, Number, Relation, Test, Text, TextPart};
use super::{Condition, DEEPEST, HIGHEST_COST, RolesUse};
use crate::config::PathCase;

/// The functions and their signatures.
const FUNCTIONS: [(&str, &str); 8] = [
    ("size", "size(string or list)"),
    ("contains", "string.contains(string)"),
    ("startsWith", "string.startsWith(string)"),
    ("endsWith", "string.endsWith(string)"),
    ("matches", "string.matches(\"literal pattern\")"),
    ("has", "has(identity.field)"),
    ("exists", "identity.roles.exists(role, condition on role)"),
    ("all", "identity.roles.all(role, condition on role)"),
];

/// The fault without a better explanation.
pub(super) const UNREADABLE: &str = "the condition is not valid CEL";

/// Compiles a condition. Needs a large stack, and panics if the parser does.
pub(super) fn condition(text: &str, path_case: PathCase) -> Result<Condition, String> {
    // Without macros `exists`, `all` and `has` are parsed as calls.
    let parser = Env::default().with_optional_support(false).parser().max_recursion_depth(DEEPEST);
    let expression = parser.parse(text).map_err(|errors| match errors.errors.first() {
        // The parser stops at the same depth, but its message is not fit for operators.
        _ if nesting(text) > DEEPEST.into() => too_deep(),
        Some(error) => format!("line {}, column {}: {}", error.pos.0.max(1), error.pos.1.max(1), error.msg),
        None => UNREADABLE.to_owned(),
    })?;
    let mut checker =
        TypeChecker { names: Vec::new(), fields: Vec::new(), roles: RolesUse::Unread, depth: 0, path_case };
    let test = match checker.value(&expression)? {
        TypedExpression::Test(test) => test,
        other => {
            return Err(format!("`{}` is {}; a condition must be a boolean", shown(&expression), other.kind()));
        }
    };
    let cost = test.cost();
    if cost > HIGHEST_COST {
        return Err(format!(
            "the condition can cost {cost} steps; {HIGHEST_COST} are allowed (`exists` and `all` count once per role, \
             `contains`, `matches` and `size` by the longest possible value)"
        ));
    }
    Ok(Condition { text: text.into(), test, fields: checker.fields, roles: checker.roles, path_case })
}

/// An expression of any type.
enum TypedExpression {
    Test(Test),
    Text(Text),
    Number(Number),
    List(List),
}

impl TypedExpression {
    fn kind(&self) -> &'static str {
        match self {
            TypedExpression::Test(_) => "a boolean",
            TypedExpression::Text(_) => "a string",
            TypedExpression::Number(_) => "a number",
            TypedExpression::List(_) => "a list",
        }
    }
}

struct TypeChecker {
    /// The variables of the enclosing `exists` and `all`, and the longest values that they can have.
    names: Vec<(String, usize)>,
    fields: Vec<Field>,
    roles: RolesUse,
    depth: u16,
    path_case: PathCase,
}

impl TypeChecker {
    fn value(&mut self, expression: &IdedExpr) -> Result<TypedExpression, String> {
        if self.depth == DEEPEST {
            return Err(too_deep());
        }
        self.depth += 1;
        let value = match &expression.expr {
            Expr::Literal(literal) => literal_value(literal),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.field(select),
            Expr::List(list) => self.texts(list),
            Expr::Call(call) => self.call(call),
            Expr::Map(_) | Expr::Struct(_) => Err("maps and messages (`{...}`) are not allowed".to_owned()),
            Expr::Comprehension(_) | Expr::Unspecified => Err(UNREADABLE.to_owned()),
        };
        self.depth -= 1;
        value
    }

    fn test(&mut self, expression: &IdedExpr) -> Result<Test, String> {
        match self.value(expression)? {
            TypedExpression::Test(test) => Ok(test),
            other => Err(mismatch(expression, &other, "a boolean")),
        }
    }

    fn text(&mut self, expression: &IdedExpr) -> Result<Text, String> {
        match self.value(expression)? {
            TypedExpression::Text(text) => Ok(text),
            other => Err(mismatch(expression, &other, "a string")),
        }
    }

    fn list(&mut self, expression: &IdedExpr) -> Result<List, String> {
        match self.value(expression)? {
            TypedExpression::List(list) => Ok(list),
            other => Err(mismatch(expression, &other, "a list (`identity.roles` or `[\"a\", \"b\"]`)")),
        }
    }

    fn name(&self, name: &str) -> Result<TypedExpression, String> {
        if let Some(outward) = self.names.iter().rev().position(|(own, _)| own == name) {
            let longest = self.names.iter().rev().nth(outward).map_or(0, |(_, longest)| *longest);
            return Ok(TypedExpression::Text(Text::Element { outward, longest }));
        }
        match fields_of(name) {
            Some(fields) => Err(format!("`{name}` is used without a field; `{name}` has {fields}")),
            None => Err(format!("`{name}` is unknown; a condition knows `identity` and `request`")),
        }
    }

    fn field(&mut self, select: &SelectExpr) -> Result<TypedExpression, String> {
        let name = match &select.operand.expr {
            Expr::Ident(name) => name.as_str(),
            _ => "",
        };
        let Some(fields) = fields_of(name) else {
            let operand = self.value(&select.operand)?;
            return Err(format!(
                "`{}` is {}, which has no field `{}`; only `identity` and `request` have fields",
                shown(&select.operand),
                operand.kind(),
                select.field
            ));
        };
        if name == "identity" && select.field == "roles" {
            self.roles = RolesUse::Read;
            return Ok(TypedExpression::List(List::Roles));
        }
        let known: &[(&str, Field)] = if name == "identity" { &Field::IDENTITY } else { &Field::REQUEST };
        let Some((_, field)) = known.iter().find(|(known, _)| *known == select.field) else {
            return Err(format!("`{name}.{}` is unknown; `{name}` has {fields}", select.field));
        };
        if !self.fields.contains(field) {
            self.fields.push(*field);
        }
        Ok(TypedExpression::Text(Text::Field(*field)))
    }

    fn texts(&mut self, list: &ListExpr) -> Result<TypedExpression, String> {
        let texts: Result<Vec<Text>, String> = list.elements.iter().map(|element| self.text(element)).collect();
        let texts = texts?;
        // What is compared with an element would have to be folded for this one only.
        if texts.iter().any(|text| self.is_folded_path(text)) {
            return Err("a list cannot have `request.path`, because the upstream ignores case".to_owned());
        }
        Ok(TypedExpression::List(List::Texts(texts)))
    }

    /// Whether a text is the path of an upstream that ignores case.
    fn is_folded_path(&self, text: &Text) -> bool {
        self.path_case == PathCase::Insensitive && matches!(text, Text::Field(Field::Path))
    }

    /// Two texts that are compared. What is compared with a folded path is folded as well.
    fn compared(&mut self, one: &IdedExpr, other: &IdedExpr) -> Result<(Text, Text), String> {
        let (one, other) = (self.text(one)?, self.text(other)?);
        Ok(self.folded(one, other))
    }

    fn folded(&self, one: Text, other: Text) -> (Text, Text) {
        let has_path = self.is_folded_path(&one) || self.is_folded_path(&other);
        if has_path { (one.folded(), other.folded()) } else { (one, other) }
    }

    fn part(&mut self, part: TextPart, text: &IdedExpr, wanted: &IdedExpr) -> Result<Test, String> {
        let (text, wanted) = self.compared(text, wanted)?;
        Ok(Test::Part(part, text, wanted))
    }

    fn among(&mut self, element: &IdedExpr, list: &IdedExpr) -> Result<Test, String> {
        let (element, list) = (self.text(element)?, self.list(list)?);
        let list = if self.is_folded_path(&element) { list.folded() } else { list };
        Ok(Test::Among(element, list))
    }

    fn matches(&mut self, text: &IdedExpr, pattern: &IdedExpr) -> Result<Test, String> {
        let Text::Literal(literal) = self.text(pattern)? else {
            return Err(format!(
                "the pattern of `matches` is `{}`; only a literal string is allowed, so that it can be checked at load",
                shown(pattern)
            ));
        };
        let text = self.text(text)?;
        if !self.is_folded_path(&text) {
            return Ok(Test::Matches(text, Box::new(Regex::compile(&literal, PathCase::Sensitive)?)));
        }
        if literal.contains('%') {
            return Err(format!(
                "`{literal}` never matches: `request.path` is decoded, because the upstream ignores case; write the \
                 character itself instead of its escape"
            ));
        }
        Ok(Test::Matches(text, Box::new(Regex::compile(&literal, PathCase::Insensitive)?)))
    }

    fn call(&mut self, call: &CallExpr) -> Result<TypedExpression, String> {
        // `size(x)` and `x.size()` are the same call.
        let operands: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        let name = call.func_name.as_str();
        let test = match (name, operands.as_slice(), call.target.is_some()) {
            (operators::LOGICAL_NOT, [test], _) => Test::Not(Box::new(self.test(test)?)),
            (operators::LOGICAL_AND, [left, right], _) => Test::Both(Box::new([self.test(left)?, self.test(right)?])),
            (operators::LOGICAL_OR, [left, right], _) => Test::Either(Box::new([self.test(left)?, self.test(right)?])),
            (operators::CONDITIONAL, [condition, then, otherwise], _) => {
                Test::Choice(Box::new([self.test(condition)?, self.test(then)?, self.test(otherwise)?]))
            }
            (operators::IN, [element, list], _) => self.among(element, list)?,
            ("size", [value], _) => {
                return Ok(TypedExpression::Number(match self.value(value)? {
                    TypedExpression::Text(text) => Number::Length(text),
                    TypedExpression::List(list) => Number::Count(list),
                    other => return Err(mismatch(value, &other, "a string or a list")),
                }));
            }
            ("contains", [text, part], true) => self.part(TextPart::Anywhere, text, part)?,
            ("startsWith", [text, part], true) => self.part(TextPart::Start, text, part)?,
            ("endsWith", [text, part], true) => self.part(TextPart::End, text, part)?,
            ("matches", [text, pattern], _) => self.matches(text, pattern)?,
            ("has", [IdedExpr { expr: Expr::Select(select), .. }], false) => match self.field(select)? {
                TypedExpression::List(list) => Test::Numbers(Relation::Above, Number::Count(list), Number::Literal(0)),
                TypedExpression::Text(text) => Test::Texts(Relation::Unequal, text, Text::Literal("".into())),
                TypedExpression::Test(_) | TypedExpression::Number(_) => return Err(call_fault("has")),
            },
            ("exists", [list, IdedExpr { expr: Expr::Ident(name), .. }, body], true) => {
                let (list, body) = self.comprehension(list, name, body)?;
                Test::Exists(list, body)
            }
            ("all", [list, IdedExpr { expr: Expr::Ident(name), .. }, body], true) => {
                let (list, body) = self.comprehension(list, name, body)?;
                Test::All(list, body)
            }
            (_, [left, right], false) if let Some(relation) = relation(name) => {
                self.comparison(relation, left, right)?
            }
            _ => return Err(call_fault(name)),
        };
        Ok(TypedExpression::Test(test))
    }

    fn comparison(&mut self, relation: Relation, left: &IdedExpr, right: &IdedExpr) -> Result<Test, String> {
        let orders = !matches!(relation, Relation::Equal | Relation::Unequal);
        match (self.value(left)?, self.value(right)?) {
            (TypedExpression::Text(left), TypedExpression::Text(right)) => {
                let (left, right) = self.folded(left, right);
                Ok(Test::Texts(relation, left, right))
            }
            (TypedExpression::Number(left), TypedExpression::Number(right)) => Ok(Test::Numbers(relation, left, right)),
            (TypedExpression::Test(left), TypedExpression::Test(right)) if !orders => {
                Ok(Test::Truths(relation, Box::new([left, right])))
            }
            (one, other) => Err(format!(
                "`{}` is {} and `{}` is {}; allowed are comparisons of two strings or two numbers, and `==` and `!=` of \
                 two booleans; for lists use `in`, `exists` and `all`",
                shown(left),
                one.kind(),
                shown(right),
                other.kind()
            )),
        }
    }

    fn comprehension(&mut self, list: &IdedExpr, name: &str, body: &IdedExpr) -> Result<(List, Box<Test>), String> {
        let list = self.list(list)?;
        if name.starts_with('.') || fields_of(name).is_some() {
            return Err(format!("`{name}` cannot name the elements of a list; choose another name"));
        }
        self.names.push((name.to_owned(), list.longest()));
        let body = self.test(body);
        self.names.pop();
        Ok((list, Box::new(body?)))
    }
}

fn literal_value(literal: &LiteralValue) -> Result<TypedExpression, String> {
    match literal {
        LiteralValue::Boolean(truth) => Ok(TypedExpression::Test(Test::Literal(*truth.inner()))),
        LiteralValue::String(text) => Ok(TypedExpression::Text(Text::Literal(text.inner().into()))),
        LiteralValue::Int(number) => Ok(TypedExpression::Number(Number::Literal(*number.inner()))),
        LiteralValue::Bytes(_) | LiteralValue::Double(_) | LiteralValue::Null | LiteralValue::UInt(_) => {
            Err("bytes, floats, unsigned integers and null are not allowed; strings, integers, true and false are"
                .to_owned())
        }
    }
}

fn relation(operator: &str) -> Option<Relation> {
    match operator {
        operators::EQUALS => Some(Relation::Equal),
        operators::NOT_EQUALS => Some(Relation::Unequal),
        operators::LESS => Some(Relation::Below),
        operators::LESS_EQUALS => Some(Relation::AtMost),
        operators::GREATER => Some(Relation::Above),
        operators::GREATER_EQUALS => Some(Relation::AtLeast),
        _ => None,
    }
}

/// The fields of a variable, for faults; `None` if there is no such variable.
fn fields_of(variable: &str) -> Option<String> {
    let names = |fields: &[(&'static str, Field)]| fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    match variable {
        "identity" => Some(format!("{}, roles", names(&Field::IDENTITY))),
        "request" => Some(names(&Field::REQUEST)),
        _ => None,
    }
}

fn mismatch(expression: &IdedExpr, found: &TypedExpression, wanted: &str) -> String {
    format!("`{}` is {}, but {wanted} is required", shown(expression), found.kind())
}

/// The fault of a call.
fn call_fault(name: &str) -> String {
    if let Some((_, usage)) = FUNCTIONS.iter().find(|(known, _)| *known == name) {
        return format!("`{name}` is called wrongly; write `{usage}`");
    }
    if !is_operator(name) {
        let known: Vec<&str> = FUNCTIONS.iter().map(|(known, _)| *known).collect();
        return format!("`{name}` is not a function; allowed are {}", known.join(", "));
    }
    format!("the operator `{}` is not allowed; allowed are ! && || ?: == != < <= > >= and in", sign(name))
}

fn too_deep() -> String {
    format!("the condition is nested too deep; allowed are {DEEPEST} levels")
}

/// An upper bound of the nesting. Counts brackets in string literals, too, so it explains a refusal but does not
/// cause one.
fn nesting(text: &str) -> usize {
    let mut depth: usize = 0;
    let mut deepest = 0;
    for c in text.chars() {
        match c {
            '(' | '[' | '{' | '?' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Whether a call is an operator: the parser names those `_+_`, `_[_]` and the like.
fn is_operator(name: &str) -> bool {
    !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}

fn sign(operator: &str) -> String {
    operator.replace(['_', '@'], "")
}

/// An expression in short form, for faults.
fn shown(expression: &IdedExpr) -> String {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => format!("\"{}\"", text.inner()),
        Expr::Literal(LiteralValue::Int(number)) => number.inner().to_string(),
        Expr::Literal(LiteralValue::Boolean(truth)) => truth.inner().to_string(),
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => format!("{}.{}", shown(&select.operand), select.field),
        Expr::List(_) => "[...]".to_owned(),
        Expr::Call(call) if is_operator(&call.func_name) => format!("... {} ...", sign(&call.func_name)),
        Expr::Call(call) => format!("{}(...)", call.func_name),
        _ => "...".to_owned(),
    }
}

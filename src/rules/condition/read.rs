//! From text to tree: CEL's grammar by the `cel` crate, the check of every node here.

use cel::Env;
use cel::common::ast::{CallExpr, Expr, IdedExpr, ListExpr, LiteralValue, SelectExpr, operators};

use super::pattern::Pattern;
use super::tree::{Field, List, Number, Part, Relation, Test, Text};
use super::{Condition, DEEPEST, HIGHEST_COST, RolesUse};

/// The functions, and how each is called.
const FUNCTIONS: [(&str, &str); 8] = [
    ("size", "size(text or list)"),
    ("contains", "text.contains(text)"),
    ("startsWith", "text.startsWith(text)"),
    ("endsWith", "text.endsWith(text)"),
    ("matches", "text.matches(\"literal pattern\")"),
    ("has", "has(identity.field)"),
    ("exists", "identity.roles.exists(role, condition on role)"),
    ("all", "identity.roles.all(role, condition on role)"),
];

/// When there is no more to say.
pub(super) const UNREADABLE: &str = "the condition cannot be read as CEL";

/// Reads and checks a condition. May overflow a small stack, and panic where the parser does.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    // Without macros `exists`, `all` and `has` stay the calls that they are written as.
    let parser = Env::default().with_optional_support(false).parser().max_recursion_depth(DEEPEST);
    let expression = parser.parse(text).map_err(|errors| match errors.errors.first() {
        // The parser stops at the same depth, but not in words that can be shown.
        _ if nesting(text) > DEEPEST.into() => too_deep(),
        Some(error) => format!("line {}, column {}: {}", error.pos.0.max(1), error.pos.1.max(1), error.msg),
        None => UNREADABLE.to_owned(),
    })?;
    let mut reader = Reader { names: Vec::new(), fields: Vec::new(), roles: RolesUse::Unread, depth: 0 };
    let test = match reader.value(&expression)? {
        Value::Test(test) => test,
        other => {
            return Err(format!("`{}` is {}; a condition must be true or false", shown(&expression), other.kind()));
        }
    };
    let cost = test.cost();
    if cost > HIGHEST_COST {
        return Err(format!(
            "the condition can cost {cost} steps; {HIGHEST_COST} are allowed (`exists` and `all` count once per role, \
             `contains`, `matches` and `size` by the longest text that can come)"
        ));
    }
    Ok(Condition { text: text.into(), test, fields: reader.fields, roles: reader.roles })
}

/// Any expression.
enum Value {
    Test(Test),
    Text(Text),
    Number(Number),
    List(List),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::Test(_) => "true or false",
            Value::Text(_) => "a text",
            Value::Number(_) => "a number",
            Value::List(_) => "a list",
        }
    }
}

struct Reader {
    /// The names that the `exists` and `all` around have given, and how long their texts can be.
    names: Vec<(String, usize)>,
    fields: Vec<Field>,
    roles: RolesUse,
    depth: u16,
}

impl Reader {
    fn value(&mut self, expression: &IdedExpr) -> Result<Value, String> {
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
            Value::Test(test) => Ok(test),
            other => Err(unfit(expression, &other, "true or false")),
        }
    }

    fn text(&mut self, expression: &IdedExpr) -> Result<Text, String> {
        match self.value(expression)? {
            Value::Text(text) => Ok(text),
            other => Err(unfit(expression, &other, "a text")),
        }
    }

    fn list(&mut self, expression: &IdedExpr) -> Result<List, String> {
        match self.value(expression)? {
            Value::List(list) => Ok(list),
            other => Err(unfit(expression, &other, "a list (`identity.roles` or `[\"a\", \"b\"]`)")),
        }
    }

    fn name(&self, name: &str) -> Result<Value, String> {
        if let Some(outward) = self.names.iter().rev().position(|(own, _)| own == name) {
            let longest = self.names.iter().rev().nth(outward).map_or(0, |(_, longest)| *longest);
            return Ok(Value::Text(Text::Element { outward, longest }));
        }
        match fields_of(name) {
            Some(fields) => Err(format!("`{name}` is used without a field; `{name}` has {fields}")),
            None => Err(format!("`{name}` is unknown; a condition knows `identity` and `request`")),
        }
    }

    fn field(&mut self, select: &SelectExpr) -> Result<Value, String> {
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
            return Ok(Value::List(List::Roles));
        }
        let known: &[(&str, Field)] = if name == "identity" { &Field::IDENTITY } else { &Field::REQUEST };
        let Some((_, field)) = known.iter().find(|(known, _)| *known == select.field) else {
            return Err(format!("`{name}.{}` is unknown; `{name}` has {fields}", select.field));
        };
        if !self.fields.contains(field) {
            self.fields.push(*field);
        }
        Ok(Value::Text(Text::Field(*field)))
    }

    fn texts(&mut self, list: &ListExpr) -> Result<Value, String> {
        let texts: Result<Vec<Text>, String> = list.elements.iter().map(|element| self.text(element)).collect();
        Ok(Value::List(List::Texts(texts?)))
    }

    fn call(&mut self, call: &CallExpr) -> Result<Value, String> {
        // `size(x)` and `x.size()` are one.
        let operands: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        let name = call.func_name.as_str();
        let test = match (name, operands.as_slice(), call.target.is_some()) {
            (operators::LOGICAL_NOT, [test], _) => Test::Not(Box::new(self.test(test)?)),
            (operators::LOGICAL_AND, [left, right], _) => Test::Both(Box::new([self.test(left)?, self.test(right)?])),
            (operators::LOGICAL_OR, [left, right], _) => Test::Either(Box::new([self.test(left)?, self.test(right)?])),
            (operators::CONDITIONAL, [condition, then, otherwise], _) => {
                Test::Choice(Box::new([self.test(condition)?, self.test(then)?, self.test(otherwise)?]))
            }
            (operators::IN, [element, list], _) => Test::Among(self.text(element)?, self.list(list)?),
            ("size", [value], _) => {
                return Ok(Value::Number(match self.value(value)? {
                    Value::Text(text) => Number::Length(text),
                    Value::List(list) => Number::Count(list),
                    other => return Err(unfit(value, &other, "a text or a list")),
                }));
            }
            ("contains", [text, part], true) => Test::Part(Part::Anywhere, self.text(text)?, self.text(part)?),
            ("startsWith", [text, part], true) => Test::Part(Part::Start, self.text(text)?, self.text(part)?),
            ("endsWith", [text, part], true) => Test::Part(Part::End, self.text(text)?, self.text(part)?),
            ("matches", [text, pattern], _) => match self.text(pattern)? {
                Text::Literal(pattern) => Test::Matches(self.text(text)?, Box::new(Pattern::compile(&pattern)?)),
                Text::Field(_) | Text::Element { .. } => {
                    return Err(format!(
                        "the pattern of `matches` is `{}`; only a literal text is allowed, so that it can be checked now",
                        shown(pattern)
                    ));
                }
            },
            ("has", [IdedExpr { expr: Expr::Select(select), .. }], false) => match self.field(select)? {
                Value::List(list) => Test::Numbers(Relation::Above, Number::Count(list), Number::Literal(0)),
                Value::Text(text) => Test::Texts(Relation::Unequal, text, Text::Literal("".into())),
                Value::Test(_) | Value::Number(_) => return Err(called("has")),
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
            _ => return Err(called(name)),
        };
        Ok(Value::Test(test))
    }

    fn comparison(&mut self, relation: Relation, left: &IdedExpr, right: &IdedExpr) -> Result<Test, String> {
        let orders = !matches!(relation, Relation::Equal | Relation::Unequal);
        match (self.value(left)?, self.value(right)?) {
            (Value::Text(left), Value::Text(right)) => Ok(Test::Texts(relation, left, right)),
            (Value::Number(left), Value::Number(right)) => Ok(Test::Numbers(relation, left, right)),
            (Value::Test(left), Value::Test(right)) if !orders => Ok(Test::Truths(relation, Box::new([left, right]))),
            (one, other) => Err(format!(
                "`{}` is {} and `{}` is {}; allowed are comparisons of two texts or two numbers, and `==` and `!=` of \
                 two truths; for lists there are `in`, `exists` and `all`",
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
            return Err(format!("`{name}` cannot name the elements of a list; any name that is not taken is allowed"));
        }
        self.names.push((name.to_owned(), list.longest()));
        let body = self.test(body);
        self.names.pop();
        Ok((list, Box::new(body?)))
    }
}

fn literal_value(literal: &LiteralValue) -> Result<Value, String> {
    match literal {
        LiteralValue::Boolean(truth) => Ok(Value::Test(Test::Literal(*truth.inner()))),
        LiteralValue::String(text) => Ok(Value::Text(Text::Literal(text.inner().into()))),
        LiteralValue::Int(number) => Ok(Value::Number(Number::Literal(*number.inner()))),
        LiteralValue::Bytes(_) | LiteralValue::Double(_) | LiteralValue::Null | LiteralValue::UInt(_) => {
            Err("bytes, fractions, unsigned numbers and null are not allowed; texts, whole numbers, true and false are"
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

/// The fields of a variable, for messages; none if there is no such variable.
fn fields_of(variable: &str) -> Option<String> {
    let names = |fields: &[(&'static str, Field)]| fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    match variable {
        "identity" => Some(format!("{}, roles", names(&Field::IDENTITY))),
        "request" => Some(names(&Field::REQUEST)),
        _ => None,
    }
}

fn unfit(expression: &IdedExpr, found: &Value, wanted: &str) -> String {
    format!("`{}` is {} where {wanted} is allowed", shown(expression), found.kind())
}

/// What is wrong with a call of that name.
fn called(name: &str) -> String {
    if let Some((_, usage)) = FUNCTIONS.iter().find(|(known, _)| *known == name) {
        return format!("`{name}` is not called like this; allowed is `{usage}`");
    }
    if !is_operator(name) {
        let known: Vec<&str> = FUNCTIONS.iter().map(|(known, _)| *known).collect();
        return format!("`{name}` is not a function of conditions; allowed are {}", known.join(", "));
    }
    format!("the operator `{}` is not allowed; allowed are ! && || ?: == != < <= > >= and in", sign(name))
}

fn too_deep() -> String {
    format!("the condition is nested too deep; allowed are {DEEPEST} levels")
}

/// How deep a text may be nested. Brackets in quotes are counted too: good enough to tell why a
/// text was refused, not to refuse it.
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

/// The grammar names operators as calls of `_+_`, `_[_]` and the like, which nobody can write.
fn is_operator(name: &str) -> bool {
    !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}

fn sign(operator: &str) -> String {
    operator.replace(['_', '@'], "")
}

/// An expression in short, for messages.
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

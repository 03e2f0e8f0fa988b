//! Type checks of rules: undefined fields, undeclared names, and operators with incompatible operands.
//!
//! An error is reported only if it is sure: an unknown type is compatible with all types. Texts and positions
//! are those of cel-go.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};

use super::compile::{MAX_ERRORS, children, join_errors, mentions, show};
use super::convert::{escape, is_visible};
use super::keywords::{self, NAMESPACES, TokenPositions};
use super::kind::{Fields, Kind};
use super::macros;
use crate::schema::Structural;

/// The types of the variables of a rule, `self` and `oldSelf`.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    self_kind: Kind<'a>,
    old_kind: Kind<'a>,
}

impl<'a> Scope<'a> {
    pub(super) fn of(schema: &'a Structural, optional_old: bool) -> Self {
        let self_kind = Kind::of(schema);
        let old_kind =
            if optional_old { Kind::Optional(Box::new(self_kind.clone())) } else { self_kind.clone() };
        Scope { self_kind, old_kind }
    }
}

/// Returns the type of an expression; the error has one paragraph for each of its errors.
pub(super) fn check<'a>(expression: &IdedExpr, text: &str, scope: &Scope<'a>) -> Result<Kind<'a>, String> {
    let mut checker = Checker {
        tokens: TokenPositions::of(text),
        local: Vec::new(),
        scope,
        errors: Vec::new(),
        truncated: 0,
        at: (1, 1),
    };
    let kind = checker.kind(expression);
    if checker.errors.is_empty() {
        return Ok(kind);
    }
    checker.errors.sort();
    let shown = checker.errors.iter().map(|((line, column), what)| show(text, *line, *column, what));
    Err(join_errors(shown.collect(), checker.truncated))
}

struct Checker<'s, 'a> {
    /// The tokens that have not been consumed.
    tokens: TokenPositions,
    /// The variables of comprehensions.
    local: Vec<(String, Kind<'a>)>,
    scope: &'s Scope<'a>,
    errors: Vec<((usize, usize), String)>,
    /// The number of errors that are not reported.
    truncated: usize,
    /// The position of the last checked expression.
    at: (usize, usize),
}

impl<'a> Checker<'_, 'a> {
    fn kind(&mut self, expression: &IdedExpr) -> Kind<'a> {
        match &expression.expr {
            Expr::Literal(literal) => {
                self.at = self.tokens.next_token(&literal_token(literal));
                literal_kind(literal)
            }
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::List(list) => {
                let kinds: Vec<Kind<'_>> = list.elements.iter().map(|item| self.kind(item)).collect();
                let first = kinds.first().cloned().unwrap_or(Kind::Dyn);
                let uniform = kinds.iter().all(|kind| *kind == first) && list.optional_indices.is_empty();
                Kind::List(Box::new(if uniform { first } else { Kind::Dyn }))
            }
            Expr::Map(_) => {
                for child in children(expression) {
                    self.kind(child);
                }
                Kind::Map(Box::new(Kind::Dyn))
            }
            Expr::Comprehension(expr) => self.comprehension(expr),
            Expr::Call(call) => self.call(call),
            Expr::Struct(_) | Expr::Unspecified => Kind::Dyn,
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Kind<'a> {
        let range = self.kind(&comprehension.iter_range);
        let item = match range {
            Kind::List(inner) => *inner,
            Kind::Map(_) => Kind::String,
            Kind::Dyn => Kind::Dyn,
            other => {
                let what = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.name()
                );
                self.error(self.at, what)
            }
        };
        self.tokens.next_token(&comprehension.iter_var);
        self.local.push((comprehension.iter_var.clone(), item.clone()));
        let makes_list = matches!(comprehension.accu_init.expr, Expr::List(_));
        let mut parts = explicit_parts(&comprehension.loop_step);
        let filters = is_filter(&parts);
        if filters || !makes_list {
            // The rule contains one condition; the counter of `exists_one` and the list of `filter` are added
            // by the macro.
            parts.truncate(1);
        }
        let last = parts.into_iter().map(|part| self.kind(part)).last();
        self.local.pop();
        match last {
            _ if !makes_list => Kind::Bool,
            _ if filters => Kind::List(Box::new(item)),
            Some(kind @ Kind::List(_)) => kind,
            _ => Kind::List(Box::new(Kind::Dyn)),
        }
    }

    fn ident(&mut self, name: &str) -> Kind<'a> {
        let position = self.tokens.next_token(name);
        self.at = position;
        if let Some((_, kind)) = self.local.iter().rev().find(|(local, _)| local == name) {
            return kind.clone();
        }
        match name {
            "self" => self.scope.self_kind.clone(),
            "oldSelf" => self.scope.old_kind.clone(),
            _ if name.starts_with('@') || keywords::is_type(name) => Kind::Dyn,
            _ => self.error(position, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Kind<'a> {
        let has_position = if select.test { Some(self.tokens.next_call("has")) } else { None };
        let operand = self.kind(&select.operand);
        let position = self.tokens.next_field(&select.field);
        self.at = has_position.unwrap_or(position);
        let kind = self.field(&operand, &select.field, self.at);
        if select.test { Kind::Bool } else { kind }
    }

    fn field(&mut self, operand: &Kind<'a>, name: &str, position: (usize, usize)) -> Kind<'a> {
        match operand {
            Kind::Dyn => Kind::Dyn,
            Kind::Map(values) => (**values).clone(),
            Kind::Optional(operand) => {
                let operand = (**operand).clone();
                match self.field(&operand, name, position) {
                    optional @ Kind::Optional(_) => optional,
                    kind => Kind::Optional(Box::new(kind)),
                }
            }
            Kind::Object(fields) => match find(*fields, name) {
                Some(kind) => kind,
                None => self.error(position, format!("undefined field '{name}'")),
            },
            other => {
                let what = format!("type '{}' does not support field selection", other.name());
                self.error(position, what)
            }
        }
    }

    fn call(&mut self, call: &CallExpr) -> Kind<'a> {
        if let Some(symbol) = keywords::operator_symbol(&call.func_name) {
            return self.operator(call, symbol);
        }
        let name = call.func_name.as_str();
        match name {
            operators::OPT_SELECT => return self.optional_field(call),
            operators::INDEX | operators::OPT_INDEX => return self.index(call),
            _ => {}
        }
        if let Some((target, variable, body)) = macros::parts(call) {
            return self.optional_map(name, target, variable, body);
        }
        let target = match call.target.as_deref() {
            Some(IdedExpr { expr: Expr::Ident(namespace), .. })
                if NAMESPACES.contains(&namespace.as_str()) && !self.is_local(namespace) =>
            {
                self.tokens.next_token(namespace);
                None
            }
            Some(target) => Some(self.kind(target)),
            None => None,
        };
        let position = self.tokens.next_call(name);
        let args: Vec<Kind<'_>> = call.args.iter().map(|arg| self.kind(arg)).collect();
        self.at = position;
        if !keywords::is_function(name) {
            return self.error(position, format!("undeclared reference to '{name}' (in container '')"));
        }
        if !keywords::accepts(name, target.as_ref(), &args) {
            let args: Vec<String> = args.iter().map(Kind::name).collect();
            let target = target.map(|target| format!("{}.", target.name())).unwrap_or_default();
            return self.error(position, no_overload(name, &format!("{target}({})", args.join(", "))));
        }
        match keywords::return_type(name) {
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "string" => Kind::String,
            "double" => Kind::Double,
            "duration" => Kind::Duration,
            "timestamp" => Kind::Timestamp,
            _ => Kind::Dyn,
        }
    }

    fn operator(&mut self, call: &CallExpr, symbol: &str) -> Kind<'a> {
        let mut kinds = Vec::with_capacity(call.args.len());
        let mut position = (1, 1);
        for (at, arg) in call.args.iter().enumerate() {
            // The symbol precedes the only operand, or follows the first one.
            if call.args.len() == 1 {
                position = self.tokens.next_token(symbol);
            }
            let kind = self.kind(arg);
            if matches!(call.func_name.as_str(), operators::LOGICAL_AND | operators::LOGICAL_OR)
                && !kind.is_compatible_with(&Kind::Bool)
            {
                let what = format!("expected type 'bool' but found '{}'", kind.name());
                kinds.push(self.error(self.at, what));
            } else {
                kinds.push(kind);
            }
            if at == 0 && call.args.len() > 1 {
                position = self.tokens.next_token(symbol);
            }
        }
        self.at = position;
        keywords::operator_result(&call.func_name, &kinds).unwrap_or_else(|| {
            let names: Vec<String> = kinds.iter().map(Kind::name).collect();
            let what = no_overload(&call.func_name, &format!("({})", names.join(", ")));
            self.error(position, what)
        })
    }

    fn optional_field(&mut self, call: &CallExpr) -> Kind<'a> {
        let [operand, name] = call.args.as_slice() else { return Kind::Dyn };
        let operand = self.kind(operand);
        let Expr::Literal(LiteralValue::String(name)) = &name.expr else { return Kind::Dyn };
        let position = self.tokens.next_field(name.inner());
        match self.field(&operand, name.inner(), position) {
            optional @ Kind::Optional(_) => optional,
            kind => Kind::Optional(Box::new(kind)),
        }
    }

    fn optional_map(&mut self, name: &str, target: &IdedExpr, variable: &str, body: &IdedExpr) -> Kind<'a> {
        let target = self.kind(target);
        let position = self.tokens.next_call(name);
        let contents = match target {
            Kind::Optional(inner) => *inner,
            Kind::Dyn => Kind::Dyn,
            other => {
                // cel-go checks the expanded macro, which calls both functions.
                let applied = format!("{}.()", other.name());
                self.error(position, no_overload("hasValue", &applied));
                self.error(position, no_overload("value", &applied))
            }
        };
        self.tokens.next_token(variable);
        self.local.push((variable.to_owned(), contents));
        let result = self.kind(body);
        self.local.pop();
        self.at = position;
        match (name, result) {
            ("optMap", result) => Kind::Optional(Box::new(result)),
            (_, result @ (Kind::Optional(_) | Kind::Dyn)) => result,
            (_, result) => {
                let applied = format!("(bool, {}, optional_type(dyn))", result.name());
                self.error(position, no_overload(operators::CONDITIONAL, &applied))
            }
        }
    }

    fn index(&mut self, call: &CallExpr) -> Kind<'a> {
        let kinds: Vec<Kind<'_>> = call.args.iter().map(|arg| self.kind(arg)).collect();
        let item = match kinds.into_iter().next() {
            Some(Kind::List(inner) | Kind::Map(inner)) => *inner,
            _ => return Kind::Dyn,
        };
        if call.func_name == operators::OPT_INDEX { Kind::Optional(Box::new(item)) } else { item }
    }

    fn is_local(&self, name: &str) -> bool {
        self.local.iter().any(|(local, _)| local == name)
    }

    fn error(&mut self, position: (usize, usize), what: String) -> Kind<'a> {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push((position, what));
        } else {
            self.truncated += 1;
        }
        Kind::Dyn
    }
}

fn no_overload(function: &str, applied: &str) -> String {
    format!("found no matching overload for '{function}' applied to '{applied}'")
}

fn find<'a>(fields: Fields<'a>, name: &str) -> Option<Kind<'a>> {
    let schema = match fields {
        Fields::Meta => return matches!(name, "name" | "generateName").then_some(Kind::String),
        Fields::Schema(schema) => schema,
    };
    if schema.resource {
        match name {
            "apiVersion" | "kind" => return Some(Kind::String),
            "metadata" => return Some(Kind::Object(Fields::Meta)),
            _ => {}
        }
    }
    let field = unescape(name);
    let field_schema =
        schema.properties.get(field.as_str()).filter(|field_schema| is_visible(field_schema))?;
    (escape(&field).as_deref() == Some(name)).then(|| Kind::of(field_schema))
}

/// Returns the field name for an escaped name.
fn unescape(name: &str) -> String {
    let reserved = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"));
    if let Some(reserved) = reserved.filter(|reserved| escape(reserved).as_deref() == Some(name)) {
        return reserved.to_owned();
    }
    let escapes = [("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"), ("__underscores__", "__")];
    let mut field = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let entry = escapes.iter().find(|(escaped, _)| rest.starts_with(escaped));
        let (length, character) =
            entry.map_or((letter.len_utf8(), None), |(escaped, entry)| (escaped.len(), Some(*entry)));
        let (piece, after) = rest.split_at(length);
        field.push_str(character.unwrap_or(piece));
        rest = after;
    }
    field
}

/// Returns the token of a literal; empty if its text in the rule is unknown.
fn literal_token(literal: &LiteralValue) -> String {
    match literal {
        LiteralValue::Boolean(flag) => flag.inner().to_string(),
        LiteralValue::Int(whole) => whole.inner().to_string(),
        LiteralValue::Null => "null".to_owned(),
        LiteralValue::String(_) | LiteralValue::Bytes(_) => "\"".to_owned(),
        LiteralValue::UInt(_) | LiteralValue::Double(_) => String::new(),
    }
}

fn literal_kind<'a>(literal: &LiteralValue) -> Kind<'a> {
    match literal {
        LiteralValue::Boolean(_) => Kind::Bool,
        LiteralValue::Bytes(_) => Kind::Bytes,
        LiteralValue::Double(_) => Kind::Double,
        LiteralValue::Int(_) => Kind::Int,
        LiteralValue::Null => Kind::Null,
        LiteralValue::String(_) => Kind::String,
        LiteralValue::UInt(_) => Kind::Uint,
    }
}

/// Returns the parts of a loop step that the rule contains. The parts added by the macro use the accumulator
/// of the loop and are omitted; a nested loop has its own accumulator.
fn explicit_parts(step: &IdedExpr) -> Vec<&IdedExpr> {
    match &step.expr {
        Expr::Ident(name) if name == "@result" => Vec::new(),
        Expr::Comprehension(_) => vec![step],
        _ if !mentions(step, "@result") => vec![step],
        _ => children(step).into_iter().flat_map(explicit_parts).collect(),
    }
}

/// Whether a loop is `filter`, which returns its entries unchanged, and not `map` with a condition.
///
/// Both have a condition and a list with the result. The result of `filter` is the loop variable, which
/// precedes the condition in the text, so its id is smaller. The result of `map` follows the condition.
fn is_filter(parts: &[&IdedExpr]) -> bool {
    match parts {
        [condition, IdedExpr { expr: Expr::List(list), .. }] => {
            list.elements.first().is_some_and(|entry| entry.id < condition.id)
        }
        _ => false,
    }
}

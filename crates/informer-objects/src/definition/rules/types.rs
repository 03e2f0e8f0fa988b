//! The types of a rule, as far as they tell that it cannot work: fields that are not there, names that nobody declared, operators
//! between things that do not go together.
//!
//! Whatever is not surely wrong passes: a type that is not known goes with everything. The texts and places are those of the
//! real checker.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};

use super::compile::{MAX_ERRORS, children, mentions, show, some_errors};
use super::convert::{escape, is_visible};
use super::keywords::{self, NAMESPACES, Places};
use super::kind::{Fields, Kind};
use super::macros;
use crate::schema::Structural;

/// What a rule can name.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    this: Kind<'a>,
    old: Kind<'a>,
}

impl<'a> Scope<'a> {
    pub(super) fn of(schema: &'a Structural, optional_old: bool) -> Self {
        let this = Kind::of(schema);
        let old = if optional_old { Kind::Optional(Box::new(this.clone())) } else { this.clone() };
        Scope { this, old }
    }
}

/// What a rule gives; the error has one paragraph for each thing that is wrong.
pub(super) fn check<'a>(expression: &IdedExpr, text: &str, scope: &Scope<'a>) -> Result<Kind<'a>, String> {
    let mut checker = Checker {
        places: Places::of(text),
        local: Vec::new(),
        scope,
        wrong: Vec::new(),
        left_out: 0,
        at: (1, 1),
    };
    let kind = checker.kind(expression);
    if checker.wrong.is_empty() {
        return Ok(kind);
    }
    checker.wrong.sort();
    let shown = checker.wrong.iter().map(|((line, column), what)| show(text, *line, *column, what));
    Err(some_errors(shown.collect(), checker.left_out))
}

struct Checker<'s, 'a> {
    /// Where the pieces of the text are that have not been passed.
    places: Places,
    /// Variables of loops.
    local: Vec<(String, Kind<'a>)>,
    scope: &'s Scope<'a>,
    wrong: Vec<((usize, usize), String)>,
    /// How much more is wrong than is told.
    left_out: usize,
    /// The place of the expression that was looked at last.
    at: (usize, usize),
}

impl<'a> Checker<'_, 'a> {
    fn kind(&mut self, expression: &IdedExpr) -> Kind<'a> {
        match &expression.expr {
            Expr::Literal(literal) => {
                self.at = self.places.pass(&written_literal(literal), false);
                literal_kind(literal)
            }
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::List(list) => {
                let kinds: Vec<Kind<'_>> = list.elements.iter().map(|item| self.kind(item)).collect();
                let first = kinds.first().cloned().unwrap_or(Kind::Dyn);
                let alike = kinds.iter().all(|kind| *kind == first) && list.optional_indices.is_empty();
                Kind::List(Box::new(if alike { first } else { Kind::Dyn }))
            }
            Expr::Map(_) => {
                for child in children(expression) {
                    self.kind(child);
                }
                Kind::Map(Box::new(Kind::Dyn))
            }
            Expr::Comprehension(loops) => self.repeat(loops),
            Expr::Call(call) => self.call(call),
            Expr::Struct(_) | Expr::Unspecified => Kind::Dyn,
        }
    }

    fn repeat(&mut self, loops: &ComprehensionExpr) -> Kind<'a> {
        let range = self.kind(&loops.iter_range);
        let item = match range {
            Kind::List(of) => *of,
            Kind::Map(_) => Kind::String,
            Kind::Dyn => Kind::Dyn,
            other => {
                let what = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.name()
                );
                self.refuse(self.at, what)
            }
        };
        self.places.pass(&loops.iter_var, false);
        self.local.push((loops.iter_var.clone(), item.clone()));
        let makes_list = matches!(loops.accu_init.expr, Expr::List(_));
        let mut parts = written_parts(&loops.loop_step);
        let filters = is_filter(&parts);
        if filters || !makes_list {
            // One condition was written; what `exists_one` counts and `filter` keeps was not.
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
        let place = self.places.pass(name, false);
        self.at = place;
        if let Some((_, kind)) = self.local.iter().rev().find(|(local, _)| local == name) {
            return kind.clone();
        }
        match name {
            "self" => self.scope.this.clone(),
            "oldSelf" => self.scope.old.clone(),
            _ if name.starts_with('@') || keywords::is_type(name) => Kind::Dyn,
            _ => self.refuse(place, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Kind<'a> {
        let test = if select.test { Some(self.places.pass_call("has")) } else { None };
        let of = self.kind(&select.operand);
        let place = self.places.pass(&select.field, true);
        self.at = test.unwrap_or(place);
        let kind = self.field(&of, &select.field, self.at);
        if select.test { Kind::Bool } else { kind }
    }

    fn field(&mut self, of: &Kind<'a>, name: &str, place: (usize, usize)) -> Kind<'a> {
        match of {
            Kind::Dyn => Kind::Dyn,
            Kind::Map(values) => (**values).clone(),
            Kind::Optional(of) => {
                let of = (**of).clone();
                match self.field(&of, name, place) {
                    optional @ Kind::Optional(_) => optional,
                    kind => Kind::Optional(Box::new(kind)),
                }
            }
            Kind::Object(fields) => match find(*fields, name) {
                Some(kind) => kind,
                None => self.refuse(place, format!("undefined field '{name}'")),
            },
            other => {
                let what = format!("type '{}' does not support field selection", other.name());
                self.refuse(place, what)
            }
        }
    }

    fn call(&mut self, call: &CallExpr) -> Kind<'a> {
        if let Some(sign) = keywords::sign(&call.func_name) {
            return self.operator(call, sign);
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
            Some(IdedExpr { expr: Expr::Ident(space), .. })
                if NAMESPACES.contains(&space.as_str()) && !self.is_local(space) =>
            {
                self.places.pass(space, false);
                None
            }
            Some(target) => Some(self.kind(target)),
            None => None,
        };
        let place = self.places.pass_call(name);
        let args: Vec<Kind<'_>> = call.args.iter().map(|arg| self.kind(arg)).collect();
        self.at = place;
        if !keywords::is_function(name) {
            return self.refuse(place, format!("undeclared reference to '{name}' (in container '')"));
        }
        if !keywords::fits(name, target.as_ref(), &args) {
            let args: Vec<String> = args.iter().map(Kind::name).collect();
            let target = target.map(|target| format!("{}.", target.name())).unwrap_or_default();
            return self.refuse(place, no_overload(name, &format!("{target}({})", args.join(", "))));
        }
        match keywords::gives(name) {
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "string" => Kind::String,
            "double" => Kind::Double,
            "duration" => Kind::Duration,
            "timestamp" => Kind::Timestamp,
            _ => Kind::Dyn,
        }
    }

    fn operator(&mut self, call: &CallExpr, sign: &str) -> Kind<'a> {
        let mut kinds = Vec::with_capacity(call.args.len());
        let mut place = (1, 1);
        for (at, arg) in call.args.iter().enumerate() {
            // The sign stands in front of the only operand, or behind the first.
            if call.args.len() == 1 {
                place = self.places.pass(sign, false);
            }
            let kind = self.kind(arg);
            if matches!(call.func_name.as_str(), operators::LOGICAL_AND | operators::LOGICAL_OR)
                && !kind.is_or_may_be(&Kind::Bool)
            {
                let what = format!("expected type 'bool' but found '{}'", kind.name());
                kinds.push(self.refuse(self.at, what));
            } else {
                kinds.push(kind);
            }
            if at == 0 && call.args.len() > 1 {
                place = self.places.pass(sign, false);
            }
        }
        self.at = place;
        keywords::judge(&call.func_name, &kinds).unwrap_or_else(|| {
            let names: Vec<String> = kinds.iter().map(Kind::name).collect();
            let what = no_overload(&call.func_name, &format!("({})", names.join(", ")));
            self.refuse(place, what)
        })
    }

    fn optional_field(&mut self, call: &CallExpr) -> Kind<'a> {
        let [of, name] = call.args.as_slice() else { return Kind::Dyn };
        let of = self.kind(of);
        let Expr::Literal(LiteralValue::String(name)) = &name.expr else { return Kind::Dyn };
        let place = self.places.pass(name.inner(), true);
        match self.field(&of, name.inner(), place) {
            optional @ Kind::Optional(_) => optional,
            kind => Kind::Optional(Box::new(kind)),
        }
    }

    fn optional_map(&mut self, name: &str, target: &IdedExpr, variable: &str, body: &IdedExpr) -> Kind<'a> {
        let target = self.kind(target);
        let place = self.places.pass_call(name);
        let held = match target {
            Kind::Optional(of) => *of,
            Kind::Dyn => Kind::Dyn,
            other => {
                let applied = format!("{}.()", other.name());
                self.refuse(place, no_overload("hasValue", &applied));
                self.refuse(place, no_overload("value", &applied))
            }
        };
        self.places.pass(variable, false);
        self.local.push((variable.to_owned(), held));
        let made = self.kind(body);
        self.local.pop();
        self.at = place;
        match (name, made) {
            ("optMap", made) => Kind::Optional(Box::new(made)),
            (_, made @ (Kind::Optional(_) | Kind::Dyn)) => made,
            (_, made) => {
                let applied = format!("(bool, {}, optional_type(dyn))", made.name());
                self.refuse(place, no_overload(operators::CONDITIONAL, &applied))
            }
        }
    }

    fn index(&mut self, call: &CallExpr) -> Kind<'a> {
        let kinds: Vec<Kind<'_>> = call.args.iter().map(|arg| self.kind(arg)).collect();
        let item = match kinds.into_iter().next() {
            Some(Kind::List(of) | Kind::Map(of)) => *of,
            _ => return Kind::Dyn,
        };
        if call.func_name == operators::OPT_INDEX { Kind::Optional(Box::new(item)) } else { item }
    }

    fn is_local(&self, name: &str) -> bool {
        self.local.iter().any(|(local, _)| local == name)
    }

    fn refuse(&mut self, place: (usize, usize), what: String) -> Kind<'a> {
        if self.wrong.len() < MAX_ERRORS {
            self.wrong.push((place, what));
        } else {
            self.left_out += 1;
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
        Fields::Of(schema) => schema,
    };
    if schema.resource {
        match name {
            "apiVersion" | "kind" => return Some(Kind::String),
            "metadata" => return Some(Kind::Object(Fields::Meta)),
            _ => {}
        }
    }
    let field = unescape(name);
    let of = schema.properties.get(field.as_str()).filter(|of| is_visible(of))?;
    (escape(&field).as_deref() == Some(name)).then(|| Kind::of(of))
}

/// The field that a rule may call so, if any is called so.
fn unescape(name: &str) -> String {
    let reserved = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"));
    if let Some(reserved) = reserved.filter(|reserved| escape(reserved).as_deref() == Some(name)) {
        return reserved.to_owned();
    }
    let signs = [("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"), ("__underscores__", "__")];
    let mut field = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(letter) = rest.chars().next() {
        let sign = signs.iter().find(|(escaped, _)| rest.starts_with(escaped));
        let (length, written) =
            sign.map_or((letter.len_utf8(), None), |(escaped, sign)| (escaped.len(), Some(*sign)));
        let (piece, behind) = rest.split_at(length);
        field.push_str(written.unwrap_or(piece));
        rest = behind;
    }
    field
}

/// How a literal looks among the tokens.
fn written_literal(literal: &LiteralValue) -> String {
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

/// What of a loop's step was written, not made by the macro: whatever does not use the loop's result. A loop inside has a
/// result of its own.
fn written_parts(step: &IdedExpr) -> Vec<&IdedExpr> {
    match &step.expr {
        Expr::Ident(name) if name == "@result" => Vec::new(),
        Expr::Comprehension(_) => vec![step],
        _ if !mentions(step, "@result") => vec![step],
        _ => children(step).into_iter().flat_map(written_parts).collect(),
    }
}

/// Whether a loop keeps its entries as they are: then the list it makes names what was written before the condition, the
/// variable. Numbers grow along the text.
fn is_filter(parts: &[&IdedExpr]) -> bool {
    match parts {
        [condition, IdedExpr { expr: Expr::List(list), .. }] => {
            list.elements.first().is_some_and(|kept| kept.id < condition.id)
        }
        _ => false,
    }
}

//! Running rules along an object.
//!
//! A rule sees the value it stands at, and what stood there before if the two can be told to belong together. What a rule
//! refuses but has not changed is let through, unless the rule itself looks at the old value.

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use super::super::field;
use super::super::object::pair::Pair;
use super::super::paths;
use super::Programs;
use super::budget::{EXCEEDED, Meter, PER_CALL, PER_OBJECT};
use super::compile::Compiled;
use super::convert::{is_visible, to_cel};
use crate::model::Cause;
use crate::schema::{Rule, Structural, StructuralType};

/// How long a message may be that a rule makes itself.
const LONGEST_MESSAGE: usize = 5 << 10;

/// What the rules of a schema say about a value.
pub(super) fn walk(
    schema: &Structural,
    programs: &Programs,
    value: &Value,
    old: Option<&Value>,
    pair: Option<Pair<'_>>,
    at: &str,
) -> Vec<Cause> {
    let mut context = Context::default().with_all();
    let meter = Meter::default();
    meter.install(&mut context);
    install_types(&mut context);
    let mut run = Run { programs, context, meter, left: PER_OBJECT, causes: Vec::new() };
    // Running out of budget ends the walk; what was found until then is the answer.
    let _ = run.level(schema, value, old, Ratchet { here: pair, above: None }, at);
    run.causes
}

/// `type(self) == int`: the evaluator has no types as values, so their names stand for them.
fn install_types(context: &mut Context<'_>) {
    for name in ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type"] {
        context.add_variable_from_value(name, name.to_owned());
    }
    context.add_function("type", |value: Cel| -> String {
        let name = match value {
            Cel::Bool(_) => "bool",
            Cel::Int(_) => "int",
            Cel::UInt(_) => "uint",
            Cel::Float(_) => "double",
            Cel::String(_) => "string",
            Cel::Bytes(_) => "bytes",
            Cel::List(_) => "list",
            Cel::Map(_) => "map",
            Cel::Null => "null_type",
            _ => "",
        };
        name.to_owned()
    });
}

struct Run<'a> {
    programs: &'a Programs,
    context: Context<'a>,
    meter: Meter,
    /// What the rest of the object may cost.
    left: u64,
    causes: Vec<Cause>,
}

/// The walk is over.
struct Spent;

/// What a value is compared with to see whether it changed: what stood in its place, or in the nearest place that can be told.
#[derive(Debug, Clone, Copy)]
struct Ratchet<'a> {
    here: Option<Pair<'a>>,
    above: Option<Pair<'a>>,
}

impl<'a> Ratchet<'a> {
    fn is_same(self) -> bool {
        self.here.or(self.above).is_some_and(Pair::is_same)
    }

    fn field(self, name: &str) -> Self {
        let Some(here) = self.here else { return self };
        if self.above.is_none() && matches!(name, "apiVersion" | "kind") {
            return Ratchet { here: None, above: None };
        }
        Ratchet { here: here.field(name), above: Some(here) }
    }

    fn item(self, pair: Option<Pair<'a>>) -> Self {
        if self.here.is_none() { self } else { Ratchet { here: pair, above: self.here } }
    }
}

impl Run<'_> {
    fn level<'v>(
        &mut self,
        schema: &'v Structural,
        value: &'v Value,
        old: Option<&'v Value>,
        ratchet: Ratchet<'v>,
        path: &str,
    ) -> Result<(), Spent> {
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        if !schema.rules.is_empty() {
            self.rules(schema, value, old, ratchet, path)?;
        }
        match value {
            Value::Array(items) => {
                let Some(of) = schema.items.as_deref().filter(|of| of.has_rules()) else { return Ok(()) };
                let olds = Pair::new(value, old.unwrap_or(&Value::Null), schema).items();
                for (at, item) in items.iter().enumerate() {
                    let pair = olds.get(item);
                    let path = field::index(path, at);
                    self.level(of, item, pair.map(Pair::old), ratchet.item(pair), &path)?;
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = old.and_then(|old| old.get(name));
                    let (of, path) = match (schema.properties.get(name), schema.additional.as_deref()) {
                        (Some(of), _) if is_visible(of) => (of, field::child(path, name)),
                        (None, Some(of)) => (of, field::key(path, name)),
                        _ => continue,
                    };
                    if of.has_rules() {
                        self.level(of, value, old, ratchet.field(name), &path)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules(
        &mut self,
        schema: &Structural,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        path: &str,
    ) -> Result<(), Spent> {
        if self.left == 0 {
            return self.out_of_budget(schema, path);
        }
        let this = to_cel(schema, value);
        let before = old.map(|old| to_cel(schema, old));
        let programs = self.programs;
        for rule in &schema.rules {
            let Some(compiled) = programs.get(&rule.text) else { continue };
            let expression = match &compiled.expression {
                Ok(expression) => expression,
                Err(why) => {
                    let why = format!("rule compile error: compilation failed: {why}");
                    self.complain(schema, path, &why);
                    continue;
                }
            };
            let optional = rule.optional_old_self == Some(true);
            if compiled.uses_old && before.is_none() && !optional {
                continue;
            }
            let mut scope = self.context.new_inner_scope();
            scope.add_variable_from_value("self", this.clone());
            if optional {
                let of = before.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                scope.add_variable_from_value("oldSelf", Cel::Opaque(std::sync::Arc::new(of)));
            } else if let Some(before) = &before {
                scope.add_variable_from_value("oldSelf", before.clone());
            }
            let answer = scope.resolve(expression);
            let message = match &answer {
                Ok(Cel::Bool(true)) | Err(_) => None,
                Ok(_) => message(programs, rule, &scope),
            };
            drop(scope);
            self.pay(schema, rule, path)?;
            match answer {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    if compiled.uses_old || !ratchet.is_same() {
                        self.causes.push(refusal(schema, rule, message, value, path));
                    }
                }
                Err(error) => self.failed(schema, rule, &error, path),
            }
        }
        Ok(())
    }

    /// Counts what a rule has cost.
    fn pay(&mut self, schema: &Structural, rule: &Rule, path: &str) -> Result<(), Spent> {
        let spent = self.meter.take();
        if spent > PER_CALL {
            let why = format!(
                "'{EXCEEDED}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                name_of(rule)
            );
            self.complain(schema, path, &why);
            return Err(Spent);
        }
        match self.left.checked_sub(spent) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.out_of_budget(schema, path),
        }
    }

    fn out_of_budget(&mut self, schema: &Structural, path: &str) -> Result<(), Spent> {
        let why =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        self.complain(schema, path, why);
        Err(Spent)
    }

    fn failed(&mut self, schema: &Structural, rule: &Rule, error: &ExecutionError, path: &str) {
        let (name, text) = (name_of(rule), show_error(error));
        let why = if text.starts_with("no such overload") {
            format!(
                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            )
        } else {
            format!("{text} evaluating rule: {name}")
        };
        self.complain(schema, path, &why);
    }

    fn complain(&mut self, schema: &Structural, path: &str, why: &str) {
        let kind = Value::from(schema.kind.name());
        self.causes.push(field::invalid(path, &kind, why));
    }
}

/// The message that a rule makes for the value it refuses; none if it does not, or cannot.
fn message(programs: &Programs, rule: &Rule, scope: &Context<'_>) -> Option<String> {
    let Compiled { expression, .. } = programs.get(&rule.message_expression)?;
    let Ok(Cel::String(text)) = scope.resolve(expression.as_ref().ok()?) else { return None };
    let text = text.trim();
    let usable = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
    usable.then(|| text.to_owned())
}

fn refusal(schema: &Structural, rule: &Rule, message: Option<String>, value: &Value, path: &str) -> Cause {
    let why = message.unwrap_or_else(|| match rule.message.trim() {
        "" => format!("failed rule: {}", rule.text.trim()),
        message => message.to_owned(),
    });
    let place = match paths::field_path(&rule.field_path, schema, true) {
        Ok((place, _)) if !rule.field_path.is_empty() => field::child(path, &place),
        _ => path.to_owned(),
    };
    let whole = matches!(schema.kind, StructuralType::Object | StructuralType::Array);
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => field::forbidden(&place, &why),
        Some("FieldValueRequired") => field::required(&place, &why),
        Some("FieldValueDuplicate") if whole => field::duplicate_omitted(&place),
        Some("FieldValueDuplicate") => field::duplicate(&place, value),
        _ if whole => field::invalid_omitted(&place, &why),
        _ => field::invalid(&place, value, &why),
    }
}

fn name_of(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.text.trim() } else { rule.message.trim() }
}

/// An error in the words of the real evaluator.
fn show_error(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(at)) => format!("index out of bounds: {at}"),
        ExecutionError::UndeclaredReference(name) => format!("no such attribute(s): {name}"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        _ => "no such overload".to_owned(),
    }
}

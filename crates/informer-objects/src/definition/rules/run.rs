//! Running rules along an object.
//!
//! A rule sees the value it stands at, and what stood there before if the two can be told to belong together. What a rule
//! refuses but has not changed is let through, unless the rule itself looks at the old value.

use std::cell::OnceCell;
use std::rc::Rc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use super::super::object::pair::Pair;
use super::super::{field, paths};
use super::Programs;
use super::budget::{Answer, EXCEEDED, EvalAbort, PER_CALL, PER_OBJECT};
use super::compile::Compiled;
use super::convert::{is_visible, to_cel};
use super::eval::Evaluation;
use super::functions::Patterns;
use super::operators::{Kinds, as_optional};
use crate::schema::{Rule, Structural, StructuralType};
use crate::status::StatusCause;
use crate::text::quoted;

/// How long a message may be that a rule makes itself.
const MAX_MESSAGE_BYTES: usize = 5 << 10;

/// What is said when there is not enough left to make it.
const NO_BUDGET_FOR_MESSAGE: &str = "messageExpression evaluation failed due to running out of cost budget, \
     no further validation rules will be run";

/// What the rules of a schema say about a value.
pub(super) fn walk(
    schema: &Structural,
    programs: &Programs,
    value: &Value,
    old: Option<&Value>,
    pair: Option<Pair<'_>>,
    at: &str,
) -> Vec<StatusCause> {
    let library = Context::default().with_all();
    let patterns = Patterns::default();
    let mut run = Run { programs, library: &library, patterns, left: PER_OBJECT, causes: Vec::new() };
    // Running out of budget ends the walk; what was found until then is the answer.
    let _ = run.level(schema, value, old, &Ratchet { here: pair, above: None }, at);
    run.causes
}

struct Run<'a> {
    programs: &'a Programs,
    library: &'a Context<'a>,
    patterns: Patterns,
    /// What the rest of the object may cost.
    left: u64,
    causes: Vec<StatusCause>,
}

/// What a rule sees.
#[derive(Clone, Copy)]
struct Seen<'v> {
    this: &'v Cel,
    old: Option<&'v Cel>,
    kinds: &'v Kinds,
}

/// The walk is over.
struct BudgetExceeded;

/// There is not enough left for a run.
struct OutOfBudget;

/// What a value is compared with to see whether it changed: what stood in its place, or in the nearest place that can be told.
#[derive(Debug, Clone)]
struct Ratchet<'a> {
    here: Option<Pair<'a>>,
    above: Option<Above<'a>>,
}

/// The nearest place above that can be told, and whether it changed. All below share that answer, since finding it out
/// takes long.
#[derive(Debug, Clone)]
struct Above<'a> {
    pair: Pair<'a>,
    same: Rc<OnceCell<bool>>,
}

impl<'a> Above<'a> {
    fn new(pair: Pair<'a>) -> Self {
        Above { pair, same: Rc::default() }
    }
}

impl<'a> Ratchet<'a> {
    fn is_same(&self) -> bool {
        match (self.here, &self.above) {
            (Some(here), _) => here.is_same(),
            (None, Some(above)) => *above.same.get_or_init(|| above.pair.is_same()),
            (None, None) => false,
        }
    }

    /// What is below this, as seen from there.
    fn as_above(&self) -> Option<Above<'a>> {
        self.here.map(Above::new)
    }

    fn field(&self, name: &str, above: Option<&Above<'a>>) -> Self {
        let Some(here) = self.here else { return self.clone() };
        if self.above.is_none() && matches!(name, "apiVersion" | "kind") {
            return Ratchet { here: None, above: None };
        }
        Ratchet { here: here.field(name), above: above.cloned() }
    }

    fn item(&self, pair: Option<Pair<'a>>, above: Option<&Above<'a>>) -> Self {
        if self.here.is_none() { self.clone() } else { Ratchet { here: pair, above: above.cloned() } }
    }
}

impl Run<'_> {
    fn level<'v>(
        &mut self,
        schema: &'v Structural,
        value: &'v Value,
        old: Option<&'v Value>,
        ratchet: &Ratchet<'v>,
        path: &str,
    ) -> Result<(), BudgetExceeded> {
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        if !schema.rules.is_empty() {
            self.rules(schema, value, old, ratchet, path)?;
        }
        let above = ratchet.as_above();
        match value {
            Value::Array(items) => {
                let Some(of) = schema.items.as_deref().filter(|of| of.has_rules()) else { return Ok(()) };
                let olds = Pair::new(value, old.unwrap_or(&Value::Null), schema).items();
                for (at, item) in items.iter().enumerate() {
                    let pair = olds.get(item);
                    let path = field::index(path, at);
                    let ratchet = ratchet.item(pair, above.as_ref());
                    self.level(of, item, pair.map(Pair::old), &ratchet, &path)?;
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
                        self.level(of, value, old, &ratchet.field(name, above.as_ref()), &path)?;
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
        ratchet: &Ratchet<'_>,
        path: &str,
    ) -> Result<(), BudgetExceeded> {
        // Showing a value to a rule copies it, and at each level again.
        let shown = nodes(value).saturating_add(old.map_or(0, nodes));
        self.left = self.left.saturating_sub(shown);
        if self.left == 0 {
            return self.out_of_budget(schema, path);
        }
        let mut kinds = Kinds::default();
        let this = to_cel(schema, value, &mut kinds);
        let before = old.map(|old| to_cel(schema, old, &mut kinds));
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
            let old = if optional { Some(as_optional(before.clone())) } else { before.clone() };
            let seen = Seen { this: &this, old: old.as_ref(), kinds: &kinds };
            let answer = match self.evaluate(expression, seen) {
                Ok(answer) => answer,
                Err(OutOfBudget) => return self.out_of_budget(schema, path),
            };
            match answer {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    let message = self.message(schema, rule, seen, path)?;
                    if compiled.uses_old || !ratchet.is_same() {
                        self.causes.push(refusal(schema, rule, message, value, path));
                    }
                }
                Err(EvalAbort::Failed(error)) => self.failed(schema, rule, &error, path),
                Err(EvalAbort::BudgetExceeded) => {
                    let why = format!(
                        "'{EXCEEDED}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        name_of(rule)
                    );
                    self.complain(schema, path, &why);
                    return Err(BudgetExceeded);
                }
            }
        }
        Ok(())
    }

    /// Runs an expression and pays for it.
    fn evaluate(&mut self, expression: &IdedExpr, seen: Seen<'_>) -> Result<Answer, OutOfBudget> {
        let mut run = Evaluation::new(self.library, &mut self.patterns, PER_CALL.min(self.left));
        run.lists(seen.kinds);
        run.name("self", seen.this.clone());
        if let Some(old) = seen.old {
            run.name("oldSelf", old.clone());
        }
        let (answer, spent) = run.run(expression);
        self.left = self.left.checked_sub(spent).ok_or(OutOfBudget)?;
        Ok(answer)
    }

    /// The message that a rule makes for the value it refuses; none if it does not, or cannot.
    fn message(
        &mut self,
        schema: &Structural,
        rule: &Rule,
        seen: Seen<'_>,
        path: &str,
    ) -> Result<Option<String>, BudgetExceeded> {
        let programs = self.programs;
        let Some(Compiled { expression: Ok(expression), .. }) = programs.get(&rule.message_expression) else {
            return Ok(None);
        };
        let why = match self.evaluate(expression, seen) {
            Ok(Ok(Cel::String(text))) => {
                let text = text.trim();
                let usable = !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
                return Ok(usable.then(|| text.to_owned()));
            }
            Ok(Err(EvalAbort::BudgetExceeded)) => format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                quoted(&rule.message_expression)
            ),
            Ok(_) => return Ok(None),
            Err(OutOfBudget) => NO_BUDGET_FOR_MESSAGE.to_owned(),
        };
        self.complain(schema, &place(schema, rule, path), &why);
        Err(BudgetExceeded)
    }

    fn out_of_budget(&mut self, schema: &Structural, path: &str) -> Result<(), BudgetExceeded> {
        let why =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        self.complain(schema, path, why);
        Err(BudgetExceeded)
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

fn refusal(
    schema: &Structural,
    rule: &Rule,
    message: Option<String>,
    value: &Value,
    path: &str,
) -> StatusCause {
    let why = message.unwrap_or_else(|| match rule.message.trim() {
        "" => format!("failed rule: {}", rule.text.trim()),
        message => message.to_owned(),
    });
    let place = place(schema, rule, path);
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

/// The place that a rule speaks of.
fn place(schema: &Structural, rule: &Rule, path: &str) -> String {
    match paths::field_path(&rule.field_path, schema, true) {
        Ok((place, _)) if !rule.field_path.is_empty() => field::child(path, &place),
        _ => path.to_owned(),
    }
}

/// How many values there are in one.
fn nodes(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(nodes).fold(1, u64::saturating_add),
        Value::Object(fields) => fields.values().map(nodes).fold(1, u64::saturating_add),
        _ => 1,
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
        ExecutionError::Overflow(_, Cel::UInt(_), _) => "unsigned integer overflow".to_owned(),
        ExecutionError::Overflow(_, Cel::Duration(_), _) => "duration overflow".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(at)) => format!("index out of bounds: {at}"),
        ExecutionError::UndeclaredReference(name) => format!("no such attribute(s): {name}"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        _ => "no such overload".to_owned(),
    }
}

//! Evaluation of rules along an object.
//!
//! A rule sees the value of its level, and the previous value if both can be correlated ([`Pair`]). An
//! invalid value that has not changed is tolerated, unless the rule uses the previous value.

use std::cell::OnceCell;
use std::rc::Rc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::Value;

use super::super::field;
use super::super::object::pair::Pair;
use super::super::paths::{self, BracketNotation};
use super::Programs;
use super::budget::{EXCEEDED, EvalAbort, EvalResult, MAX_COST_PER_CALL, MAX_COST_PER_OBJECT};
use super::compile::Compiled;
use super::convert::{is_visible, to_cel};
use super::eval::Evaluation;
use super::functions::Patterns;
use super::operators::{ListTypes, as_optional};
use crate::schema::{Rule, Structural, StructuralType};
use crate::status::StatusCause;
use crate::text::quoted;

/// The maximum length of a message produced by a rule.
const MAX_MESSAGE_BYTES: usize = 5 << 10;

/// The error if the remaining budget does not suffice for the message.
const NO_BUDGET_FOR_MESSAGE: &str = "messageExpression evaluation failed due to running out of cost budget, \
     no further validation rules will be run";

/// Evaluates the rules of a schema on a value and on the values inside it; `at` is the path of the value.
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
    let mut run =
        Run { programs, library: &library, patterns, remaining: MAX_COST_PER_OBJECT, causes: Vec::new() };
    // The causes found before the walk was aborted are returned.
    let _ = run.check_level(schema, value, old, &Ratchet { current: pair, ancestor: None }, at);
    run.causes
}

struct Run<'a> {
    programs: &'a Programs,
    library: &'a Context<'a>,
    patterns: Patterns,
    /// The remaining budget of the object.
    remaining: u64,
    causes: Vec<StatusCause>,
}

/// The variables of a rule.
#[derive(Clone, Copy)]
struct Variables<'v> {
    /// `self`.
    self_value: &'v Cel,
    /// `oldSelf`.
    old: Option<&'v Cel>,
    /// The types of the lists in both values.
    list_types: &'v ListTypes,
}

/// The walk is aborted, because a rule or the object exceeded its budget. The cause is reported.
struct WalkAborted;

/// An evaluation cost more than the remaining budget of the object.
struct ObjectBudgetExceeded;

/// The pair that is compared to find out whether a value changed: the value with its previous value, or its
/// nearest ancestor that can be correlated.
#[derive(Debug, Clone)]
struct Ratchet<'a> {
    current: Option<Pair<'a>>,
    ancestor: Option<Ancestor<'a>>,
}

/// The nearest ancestor that can be correlated, and whether it changed.
///
/// All descendants share the result, because the comparison is expensive.
#[derive(Debug, Clone)]
struct Ancestor<'a> {
    pair: Pair<'a>,
    same: Rc<OnceCell<bool>>,
}

impl<'a> Ancestor<'a> {
    fn new(pair: Pair<'a>) -> Self {
        Ancestor { pair, same: Rc::default() }
    }
}

impl<'a> Ratchet<'a> {
    fn is_same(&self) -> bool {
        match (self.current, &self.ancestor) {
            (Some(current), _) => current.is_same(),
            (None, Some(ancestor)) => *ancestor.same.get_or_init(|| ancestor.pair.is_same()),
            (None, None) => false,
        }
    }

    /// Returns this value as an ancestor of the values below it.
    fn as_ancestor(&self) -> Option<Ancestor<'a>> {
        self.current.map(Ancestor::new)
    }

    fn field(&self, name: &str, ancestor: Option<&Ancestor<'a>>) -> Self {
        let Some(current) = self.current else { return self.clone() };
        // At the root, `kind` and `apiVersion` never count as unchanged.
        if self.ancestor.is_none() && matches!(name, "apiVersion" | "kind") {
            return Ratchet { current: None, ancestor: None };
        }
        Ratchet { current: current.field(name), ancestor: ancestor.cloned() }
    }

    fn item(&self, pair: Option<Pair<'a>>, ancestor: Option<&Ancestor<'a>>) -> Self {
        if self.current.is_none() {
            self.clone()
        } else {
            Ratchet { current: pair, ancestor: ancestor.cloned() }
        }
    }
}

impl Run<'_> {
    fn check_level<'v>(
        &mut self,
        schema: &'v Structural,
        value: &'v Value,
        old: Option<&'v Value>,
        ratchet: &Ratchet<'v>,
        path: &str,
    ) -> Result<(), WalkAborted> {
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        if !schema.rules.is_empty() {
            self.check_rules(schema, value, old, ratchet, path)?;
        }
        let ancestor = ratchet.as_ancestor();
        match value {
            Value::Array(items) => {
                let Some(child_schema) = schema.items.as_deref().filter(|schema| schema.has_rules()) else {
                    return Ok(());
                };
                let olds = Pair::new(value, old.unwrap_or(&Value::Null), schema).items();
                for (at, item) in items.iter().enumerate() {
                    let pair = olds.get(item);
                    let path = field::index(path, at);
                    let ratchet = ratchet.item(pair, ancestor.as_ref());
                    self.check_level(child_schema, item, pair.map(Pair::old), &ratchet, &path)?;
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = old.and_then(|old| old.get(name));
                    let (child_schema, path) =
                        match (schema.properties.get(name), schema.additional.as_deref()) {
                            (Some(child_schema), _) if is_visible(child_schema) => {
                                (child_schema, field::child(path, name))
                            }
                            (None, Some(child_schema)) => (child_schema, field::key(path, name)),
                            _ => continue,
                        };
                    if child_schema.has_rules() {
                        self.check_level(
                            child_schema,
                            value,
                            old,
                            &ratchet.field(name, ancestor.as_ref()),
                            &path,
                        )?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_rules(
        &mut self,
        schema: &Structural,
        value: &Value,
        old: Option<&Value>,
        ratchet: &Ratchet<'_>,
        path: &str,
    ) -> Result<(), WalkAborted> {
        // Each level with rules copies its value again, so each copied value costs one unit.
        let copied = nodes(value).saturating_add(old.map_or(0, nodes));
        self.remaining = self.remaining.saturating_sub(copied);
        if self.remaining == 0 {
            return self.object_budget_exceeded(schema, path);
        }
        let mut list_types = ListTypes::default();
        let self_value = to_cel(schema, value, &mut list_types);
        let old_value = old.map(|old| to_cel(schema, old, &mut list_types));
        let programs = self.programs;
        for rule in &schema.rules {
            let Some(compiled) = programs.get(&rule.text) else { continue };
            let expression = match &compiled.expression {
                Ok(expression) => expression,
                Err(why) => {
                    let why = format!("rule compile error: compilation failed: {why}");
                    self.add_cause(schema, path, &why);
                    continue;
                }
            };
            let optional = rule.optional_old_self == Some(true);
            if compiled.uses_old && old_value.is_none() && !optional {
                continue;
            }
            let old = if optional { Some(as_optional(old_value.clone())) } else { old_value.clone() };
            let variables = Variables { self_value: &self_value, old: old.as_ref(), list_types: &list_types };
            let result = match self.evaluate(expression, variables) {
                Ok(result) => result,
                Err(ObjectBudgetExceeded) => return self.object_budget_exceeded(schema, path),
            };
            match result {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    // As in kube-apiserver, the message costs budget even if the error is tolerated.
                    let message = self.message(schema, rule, variables, path)?;
                    if compiled.uses_old || !ratchet.is_same() {
                        self.causes.push(rule_cause(schema, rule, message, value, path));
                    }
                }
                Err(EvalAbort::Failed(error)) => self.add_failure(schema, rule, &error, path),
                Err(EvalAbort::BudgetExceeded) => {
                    let why = format!(
                        "'{EXCEEDED}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        name_of(rule)
                    );
                    self.add_cause(schema, path, &why);
                    return Err(WalkAborted);
                }
            }
        }
        Ok(())
    }

    /// Evaluates an expression and deducts its cost from the budget of the object.
    fn evaluate(
        &mut self,
        expression: &IdedExpr,
        variables: Variables<'_>,
    ) -> Result<EvalResult, ObjectBudgetExceeded> {
        let mut evaluation =
            Evaluation::new(self.library, &mut self.patterns, MAX_COST_PER_CALL.min(self.remaining));
        evaluation.set_list_types(variables.list_types);
        evaluation.declare("self", variables.self_value.clone());
        if let Some(old) = variables.old {
            evaluation.declare("oldSelf", old.clone());
        }
        let (result, spent) = evaluation.run(expression);
        self.remaining = self.remaining.checked_sub(spent).ok_or(ObjectBudgetExceeded)?;
        Ok(result)
    }

    /// Returns the message that the `messageExpression` of a rule produces for an invalid value.
    ///
    /// Returns `None` if the rule has no such expression, or if the expression fails or its text is unusable.
    fn message(
        &mut self,
        schema: &Structural,
        rule: &Rule,
        variables: Variables<'_>,
        path: &str,
    ) -> Result<Option<String>, WalkAborted> {
        let programs = self.programs;
        let Some(Compiled { expression: Ok(expression), .. }) = programs.get(&rule.message_expression) else {
            return Ok(None);
        };
        let why = match self.evaluate(expression, variables) {
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
            Err(ObjectBudgetExceeded) => NO_BUDGET_FOR_MESSAGE.to_owned(),
        };
        self.add_cause(schema, &reported_path(schema, rule, path), &why);
        Err(WalkAborted)
    }

    /// Reports that the budget of the object is exceeded, and aborts the walk.
    fn object_budget_exceeded(&mut self, schema: &Structural, path: &str) -> Result<(), WalkAborted> {
        let why =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        self.add_cause(schema, path, why);
        Err(WalkAborted)
    }

    /// Reports that the evaluation of a rule failed.
    fn add_failure(&mut self, schema: &Structural, rule: &Rule, error: &ExecutionError, path: &str) {
        let (name, text) = (name_of(rule), show_error(error));
        let why = if text.starts_with("no such overload") {
            format!(
                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            )
        } else {
            format!("{text} evaluating rule: {name}")
        };
        self.add_cause(schema, path, &why);
    }

    /// Adds a cause that prints the type of the value instead of the value.
    fn add_cause(&mut self, schema: &Structural, path: &str, why: &str) {
        let kind = Value::from(schema.kind.name());
        self.causes.push(field::invalid(path, &kind, why));
    }
}

fn rule_cause(
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
    let path = reported_path(schema, rule, path);
    let is_composite = matches!(schema.kind, StructuralType::Object | StructuralType::Array);
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => field::forbidden(&path, &why),
        Some("FieldValueRequired") => field::required(&path, &why),
        Some("FieldValueDuplicate") if is_composite => field::duplicate_omitted(&path),
        Some("FieldValueDuplicate") => field::duplicate(&path, value),
        _ if is_composite => field::invalid_omitted(&path, &why),
        _ => field::invalid(&path, value, &why),
    }
}

/// Returns the path that a rule reports: that of its value, extended by its `fieldPath`.
fn reported_path(schema: &Structural, rule: &Rule, path: &str) -> String {
    match paths::field_path(&rule.field_path, schema, BracketNotation::Allowed) {
        Ok((field_path, _)) if !rule.field_path.is_empty() => field::child(path, &field_path),
        _ => path.to_owned(),
    }
}

/// Returns the number of values contained in a value, including itself.
fn nodes(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(nodes).fold(1, u64::saturating_add),
        Value::Object(fields) => fields.values().map(nodes).fold(1, u64::saturating_add),
        _ => 1,
    }
}

/// Returns the text that identifies a rule in errors: its message, or the rule itself if it has none.
fn name_of(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.text.trim() } else { rule.message.trim() }
}

/// Returns an error with the text of cel-go.
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

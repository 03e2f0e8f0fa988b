//! `x-kubernetes-validations`: CEL rules, compiled once and evaluated on objects.
//!
//! The parser is that of the `cel` crate, most functions are those of `kube-cel`. The evaluator is our own,
//! because that of `cel` copies the values it reads and cannot be aborted. The walk along the object is our
//! own, because paths, texts, old values and tolerated errors must be those of kube-apiserver. Rules are
//! untrusted: their length, depth and evaluation cost are limited, and they run on a stack that is large
//! enough for the deepest one.

mod budget;
mod compile;
mod convert;
mod eval;
mod functions;
mod keywords;
mod kind;
mod macros;
mod operator_tokens;
mod operators;
mod run;
mod types;

#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::object::pair::Pair;
use crate::schema::{Rule, Structural};
use crate::status::StatusCause;
use compile::Compiled;
use kind::Kind;

/// The compiled rules and message expressions of a schema by their texts; each is compiled on first use.
#[derive(Debug, Default)]
pub(crate) struct Programs(BTreeMap<String, OnceLock<Compiled>>);

impl Programs {
    pub(crate) fn of(schema: &Structural) -> Programs {
        let mut texts = BTreeMap::new();
        collect(schema, &mut texts);
        Programs(texts)
    }

    fn get(&self, text: &str) -> Option<&Compiled> {
        self.0.get(text).map(|compiled| compiled.get_or_init(|| Compiled::new(text)))
    }
}

fn collect(schema: &Structural, texts: &mut BTreeMap<String, OnceLock<Compiled>>) {
    for rule in &schema.rules {
        for text in [&rule.text, &rule.message_expression] {
            if !text.trim().is_empty() {
                texts.entry(text.clone()).or_default();
            }
        }
    }
    let below = schema.properties.values().chain(schema.items.as_deref()).chain(schema.additional.as_deref());
    below.for_each(|schema| collect(schema, texts));
}

/// Evaluates the rules of a schema on a value; `old` is its previous value, `at` its path.
pub(crate) fn check(
    schema: &Structural,
    programs: &Programs,
    value: &Value,
    old: Option<&Value>,
    at: &str,
) -> Vec<StatusCause> {
    if !schema.has_rules() {
        return Vec::new();
    }
    let pair = old.map(|old| Pair::new(value, old, schema));
    on_large_stack(|| run::walk(schema, programs, value, old, pair, at)).unwrap_or_else(|| {
        vec![StatusCause::new("InternalError", at, "Internal error: rules could not be run")]
    })
}

/// The result of checking a rule when its definition is stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleCheck {
    /// The error of the rule.
    pub rule: Option<String>,
    /// The error of its message expression.
    pub message: Option<String>,
    /// Whether the rule uses `oldSelf`.
    pub(crate) uses_old: bool,
}

/// Checks the rules of one level without evaluating them.
///
/// If the check cannot run, the rules count as valid.
pub(crate) fn check_rules(rules: &[Rule], schema: &Structural) -> Vec<RuleCheck> {
    let unchecked = || rules.iter().map(|_| RuleCheck::default()).collect();
    on_large_stack(|| rules.iter().map(|rule| check_rule(rule, schema)).collect()).unwrap_or_else(unchecked)
}

fn check_rule(rule: &Rule, schema: &Structural) -> RuleCheck {
    let mut result = RuleCheck::default();
    if rule.text.trim().is_empty() {
        return result;
    }
    let scope = types::Scope::of(schema, rule.optional_old_self == Some(true));
    match typed(&rule.text, &scope) {
        Err(text) => result.rule = Some(format!("compilation failed: {text}")),
        Ok((kind, uses_old)) => {
            result.uses_old = uses_old;
            if !kind.is_compatible_with(&Kind::Bool) {
                result.rule = Some("cel expression must evaluate to a bool".to_owned());
            }
        }
    }
    if result.rule.is_some() || rule.message_expression.is_empty() {
        return result;
    }
    match typed(&rule.message_expression, &scope) {
        Err(text) => result.message = Some(format!("messageExpression compilation failed: {text}")),
        Ok((kind, _)) if !kind.is_compatible_with(&Kind::String) => {
            result.message = Some("messageExpression must evaluate to a string".to_owned());
        }
        Ok(_) => {}
    }
    result
}

/// Returns the type of an expression, and whether it uses `oldSelf`.
fn typed<'a>(text: &str, scope: &types::Scope<'a>) -> Result<(Kind<'a>, bool), String> {
    let parsed = compile::parse(text)?;
    let kind = types::check(&parsed, text, scope)?;
    Ok((kind, compile::mentions(&parsed, "oldSelf")))
}

/// The stack size, sufficient for the deepest rule that is accepted, also in an unoptimized build.
const STACK_BYTES: usize = 96 << 20;

/// Runs a function on a stack of its own.
///
/// Returns `None` if there is no memory for the stack, or if the function panics: hostile rules may cause
/// panics in the CEL crates.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("rules".to_owned()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

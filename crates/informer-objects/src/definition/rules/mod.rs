//! `x-kubernetes-validations`: rules in CEL, compiled once and run against objects.
//!
//! The grammar is the `cel` crate's, most functions are `kube-cel`'s. The evaluator is our own, because theirs copies what it
//! looks at and cannot be stopped; so is the walk along the object, because paths, texts, old values and what is let through
//! must be those of a real server. Rules come from outside: they are bounded in length, depth and in what a run may cost, and
//! run on a stack that holds the deepest one.

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
mod judge_tests;
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

/// The compiled rules of a schema, by their texts. Each is compiled when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Programs(BTreeMap<String, OnceLock<Compiled>>);

impl Programs {
    pub(crate) fn of(schema: &Structural) -> Programs {
        let mut texts = BTreeMap::new();
        collect(schema, &mut texts);
        Programs(texts)
    }

    fn get(&self, text: &str) -> Option<&Compiled> {
        self.0.get(text).map(|place| place.get_or_init(|| Compiled::new(text)))
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

/// What the rules say about a value. `old` is what stood there before; `at` is its place.
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

/// What is wrong with a rule itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Why the rule cannot be used.
    pub rule: Option<String>,
    /// Why its message cannot be used.
    pub message: Option<String>,
    /// Whether it compares with the old value.
    pub(crate) uses_old: bool,
}

/// Looks at the rules of one level, without running them.
pub(crate) fn judge(rules: &[Rule], schema: &Structural) -> Vec<Verdict> {
    let nothing = || rules.iter().map(|_| Verdict::default()).collect();
    on_large_stack(|| rules.iter().map(|rule| judge_one(rule, schema)).collect()).unwrap_or_else(nothing)
}

fn judge_one(rule: &Rule, schema: &Structural) -> Verdict {
    let mut verdict = Verdict::default();
    if rule.text.trim().is_empty() {
        return verdict;
    }
    let scope = types::Scope::of(schema, rule.optional_old_self == Some(true));
    match typed(&rule.text, &scope) {
        Err(text) => verdict.rule = Some(format!("compilation failed: {text}")),
        Ok((kind, uses_old)) => {
            verdict.uses_old = uses_old;
            if !kind.is_or_may_be(&Kind::Bool) {
                verdict.rule = Some("cel expression must evaluate to a bool".to_owned());
            }
        }
    }
    if verdict.rule.is_some() || rule.message_expression.is_empty() {
        return verdict;
    }
    match typed(&rule.message_expression, &scope) {
        Err(text) => verdict.message = Some(format!("messageExpression compilation failed: {text}")),
        Ok((kind, _)) if !kind.is_or_may_be(&Kind::String) => {
            verdict.message = Some("messageExpression must evaluate to a string".to_owned());
        }
        Ok(_) => {}
    }
    verdict
}

fn typed<'a>(text: &str, scope: &types::Scope<'a>) -> Result<(Kind<'a>, bool), String> {
    let parsed = compile::parse(text)?;
    let kind = types::check(&parsed, text, scope)?;
    Ok((kind, compile::mentions(&parsed, "oldSelf")))
}

/// The deepest rule that is let through needs less than this, also in a build without optimisation.
const STACK: usize = 96 << 20;

/// Runs something on a stack of its own. Nothing comes back if there is no memory for it, or if it panics: the CEL crates
/// have a few places where hostile rules might make them.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("rules".to_owned()).stack_size(STACK);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

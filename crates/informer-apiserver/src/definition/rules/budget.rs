//! What a run may cost.
//!
//! Before a rule is run, every place where it can take long is wrapped into a call that counts: each turn of a loop, each
//! call of a function, each sum. A run that spends more than it may ends there. The counts are of the same size as a
//! real server's, not equal to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, operators};
use kube_cel::cel::{Context, ExecutionError, Value};

/// What one rule may cost on one value.
pub(super) const PER_CALL: u64 = 1_000_000;
/// What all rules may cost on one object.
pub(super) const PER_OBJECT: u64 = 10_000_000;

/// How a run ends that costs too much.
pub(super) const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

const COUNT: &str = "@count";
/// What is counted at each wrapped place, for it and for the cheap steps around it.
const EACH: u64 = 10;

/// What the run that is going on has cost.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter(Arc<AtomicU64>);

impl Meter {
    /// Makes a context count.
    pub(super) fn install(&self, context: &mut Context<'_>) {
        let meter = self.clone();
        context.add_function(COUNT, move |value: Value| meter.count(value));
    }

    /// What has been spent since the last time.
    pub(super) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    fn count(&self, value: Value) -> Result<Value, ExecutionError> {
        let size = match &value {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(items) => items.len(),
            Value::Map(map) => map.map.len(),
            _ => 0,
        };
        let cost = EACH + u64::try_from(size / 10).unwrap_or(u64::MAX);
        if self.0.fetch_add(cost, Ordering::Relaxed).saturating_add(cost) > PER_CALL {
            return Err(ExecutionError::function_error(COUNT, EXCEEDED));
        }
        Ok(value)
    }
}

/// Wraps what can take long.
pub(super) fn count(expression: IdedExpr) -> IdedExpr {
    let IdedExpr { id, expr } = expression;
    let all = |list: Vec<IdedExpr>| list.into_iter().map(count).collect::<Vec<_>>();
    match expr {
        Expr::Call(call) => {
            let takes_time = !is_cheap(&call.func_name);
            let target = call.target.map(|target| match target.expr {
                // The first word of a function's name, `sets` in `sets.contains`, looks like a variable.
                Expr::Ident(_) => target,
                _ => Box::new(count(*target)),
            });
            let func_name = match call.func_name.as_str() {
                // The evaluator fails on a field that is missing; a key that is missing gives nothing, as it should.
                operators::OPT_SELECT => operators::OPT_INDEX.to_owned(),
                _ => call.func_name,
            };
            let call = CallExpr { func_name, target, args: all(call.args) };
            let call = IdedExpr { id, expr: Expr::Call(call) };
            if takes_time { wrap(call) } else { call }
        }
        Expr::Comprehension(mut loops) => {
            loops.iter_range = count(loops.iter_range);
            loops.accu_init = count(loops.accu_init);
            loops.loop_step = wrap(count(loops.loop_step));
            loops.result = count(loops.result);
            IdedExpr { id, expr: Expr::Comprehension(loops) }
        }
        Expr::List(mut list) => {
            list.elements = all(list.elements);
            IdedExpr { id, expr: Expr::List(list) }
        }
        Expr::Map(mut map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(pair) = &mut entry.expr {
                    pair.key = count(std::mem::take(&mut pair.key));
                    pair.value = count(std::mem::take(&mut pair.value));
                }
            }
            IdedExpr { id, expr: Expr::Map(map) }
        }
        Expr::Select(mut select) => {
            select.operand = Box::new(count(*select.operand));
            IdedExpr { id, expr: Expr::Select(select) }
        }
        other => IdedExpr { id, expr: other },
    }
}

fn wrap(expression: IdedExpr) -> IdedExpr {
    let id = expression.id;
    let call = CallExpr { func_name: COUNT.to_owned(), target: None, args: vec![expression] };
    IdedExpr { id, expr: Expr::Call(call) }
}

/// Operators that neither loop nor make anything larger.
fn is_cheap(function: &str) -> bool {
    matches!(
        function,
        operators::CONDITIONAL
            | operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE
            | operators::NEGATE
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::INDEX
            | operators::OPT_INDEX
            | operators::OPT_SELECT
    )
}

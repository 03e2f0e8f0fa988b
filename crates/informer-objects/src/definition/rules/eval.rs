//! Evaluation of rules.
//!
//! The evaluator of the `cel` crate copies a list whenever it is referenced, so rules are evaluated here, on
//! shared values. Only functions that [`functions`] does not implement come from the library. As defined by
//! CEL, an error in one part of a rule may be compensated by another part: `all` is false if it is false for
//! any entry, even if other entries fail. Exceeding the budget cannot be compensated.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators,
};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};

use super::budget::{EvalAbort, EvalResult, Meter, UNIT, entries, size};
use super::functions::{self, Patterns};
use super::{keywords, operators as ops};

/// The cost of creating a list.
const LIST_COST: u64 = 10 * UNIT;
/// The cost of creating a map.
const MAP_COST: u64 = 30 * UNIT;

/// The evaluation of one expression.
pub(super) struct Evaluation<'a> {
    library: &'a Context<'a>,
    patterns: &'a mut Patterns,
    meter: Meter,
    lists: ops::Lists<'a>,
    /// The variables, the innermost last.
    ///
    /// The accumulator of a comprehension may be an error that a later iteration compensates for.
    names: Vec<(&'a str, Result<Cel, ExecutionError>)>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(library: &'a Context<'a>, patterns: &'a mut Patterns, limit: u64) -> Self {
        let lists = ops::Lists::default();
        Evaluation { library, patterns, meter: Meter::new(limit), lists, names: Vec::new() }
    }

    /// Sets the types of the lists in the variables.
    pub(super) fn set_list_types(&mut self, list_types: &'a ops::ListTypes) {
        self.lists = ops::Lists::new(list_types);
    }

    /// Declares a variable.
    pub(super) fn declare(&mut self, name: &'a str, value: Cel) {
        self.names.push((name, Ok(value)));
    }

    /// Evaluates an expression; also returns the cost.
    pub(super) fn run(mut self, expression: &'a IdedExpr) -> (EvalResult, u64) {
        let result = self.value(expression);
        (result, self.meter.spent())
    }

    fn value(&mut self, expression: &'a IdedExpr) -> EvalResult {
        match &expression.expr {
            Expr::Literal(literal) => self.literal(literal),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                let operand = self.value(&select.operand)?;
                ops::field(&mut self.meter, &operand, &select.field, select.test)
            }
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(expr) => self.comprehension(expr),
            Expr::Call(call) => self.call(call),
            Expr::Struct(_) | Expr::Unspecified => Err(ExecutionError::NoSuchOverload.into()),
        }
    }

    fn literal(&mut self, literal: &LiteralValue) -> EvalResult {
        Ok(match literal {
            LiteralValue::Boolean(flag) => Cel::Bool(*flag.inner()),
            LiteralValue::Double(number) => Cel::Float(*number.inner()),
            LiteralValue::Int(number) => Cel::Int(*number.inner()),
            LiteralValue::UInt(number) => Cel::UInt(*number.inner()),
            LiteralValue::Null => Cel::Null,
            LiteralValue::String(text) => {
                self.meter.charge(size(text.inner().len()) / 10)?;
                Cel::String(Arc::new(text.inner().to_owned()))
            }
            LiteralValue::Bytes(bytes) => {
                self.meter.charge(size(bytes.inner().len()) / 10)?;
                Cel::Bytes(Arc::new(bytes.inner().to_vec()))
            }
        })
    }

    fn variable(&mut self, name: &str) -> EvalResult {
        self.meter.charge(UNIT)?;
        match self.names.iter().rev().find(|(known, _)| *known == name) {
            Some((_, value)) => Ok(value.clone()?),
            // Types are not values here: the value of `int` is the string "int", as that of `type(1)`.
            None if keywords::is_type(name) => Ok(Cel::String(Arc::new(name.to_owned()))),
            None => Err(ExecutionError::UndeclaredReference(Arc::new(name.to_owned())).into()),
        }
    }

    /// Evaluates the left operand of a binary operator.
    ///
    /// The accumulator of a loop is moved out of its variable, because the loop step replaces it anyway: a
    /// list without other references is extended in place.
    fn take_value(&mut self, expression: &'a IdedExpr) -> EvalResult {
        match &expression.expr {
            Expr::Ident(name) if name.starts_with('@') => {
                self.meter.charge(UNIT)?;
                let known = self.names.iter_mut().rev().find(|(known, _)| known == name);
                let missing = || ExecutionError::UndeclaredReference(Arc::new(name.clone()));
                Ok(known
                    .map_or_else(|| Err(missing()), |(_, value)| std::mem::replace(value, Ok(Cel::Null)))?)
            }
            _ => self.value(expression),
        }
    }

    fn list(&mut self, list: &'a ListExpr) -> EvalResult {
        self.meter.charge(LIST_COST)?;
        let mut items = Vec::with_capacity(list.elements.len());
        for (at, element) in list.elements.iter().enumerate() {
            let item = self.value(element)?;
            items.extend(if list.optional_indices.contains(&at) { present(item) } else { Some(item) });
        }
        Ok(Cel::List(Arc::new(items)))
    }

    fn map(&mut self, map: &'a MapExpr) -> EvalResult {
        self.meter.charge(MAP_COST)?;
        let mut fields = HashMap::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(pair) = &entry.expr else {
                return Err(ExecutionError::NoSuchOverload.into());
            };
            let key = self.value(&pair.key)?;
            let key: Key = key.try_into().map_err(ExecutionError::UnsupportedKeyType)?;
            let value = self.value(&pair.value)?;
            let value = if pair.optional { present(value) } else { Some(value) };
            fields.extend(value.map(|value| (key, value)));
        }
        Ok(Cel::Map(Map { map: Arc::new(fields) }))
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> EvalResult {
        let range = self.value(&comprehension.iter_range)?;
        let items = match range {
            Cel::List(items) => items,
            Cel::Map(map) => {
                self.meter.charge(entries(&Cel::Map(map.clone())))?;
                Arc::new(map.map.keys().map(Cel::from).collect())
            }
            _ => return Err(ExecutionError::NoSuchOverload.into()),
        };
        let initial = self.value(&comprehension.accu_init)?;
        let accumulator = self.names.len();
        self.names.push((&comprehension.accu_var, Ok(initial)));
        let result = self.iterate(comprehension, &items, accumulator);
        self.names.truncate(accumulator);
        result
    }

    /// Iterates; the accumulator is the variable at index `accumulator`.
    fn iterate(
        &mut self,
        comprehension: &'a ComprehensionExpr,
        items: &[Cel],
        accumulator: usize,
    ) -> EvalResult {
        // `all` and `exists` continue after an error, because another entry may decide.
        let is_not_strictly_false = |call: &CallExpr| call.func_name == operators::NOT_STRICTLY_FALSE;
        let tolerates_errors =
            matches!(&comprehension.loop_cond.expr, Expr::Call(call) if is_not_strictly_false(call));
        for item in items {
            if !self.boolean(&comprehension.loop_cond)? {
                break;
            }
            self.names.push((&comprehension.iter_var, Ok(item.clone())));
            let value = self.value(&comprehension.loop_step);
            self.names.pop();
            let value = match value {
                Ok(value) => Ok(value),
                Err(EvalAbort::Failed(error)) if tolerates_errors => Err(error),
                Err(abort) => return Err(abort),
            };
            if let Some((_, result)) = self.names.get_mut(accumulator) {
                *result = value;
            }
        }
        self.value(&comprehension.result)
    }

    fn boolean(&mut self, expression: &'a IdedExpr) -> Result<bool, EvalAbort> {
        match self.value(expression)? {
            Cel::Bool(flag) => Ok(flag),
            _ => Err(ExecutionError::NoSuchOverload.into()),
        }
    }

    /// Evaluates `&&` or `||`.
    ///
    /// An operand that equals `decides` is the result, even if the other operand fails: false for `&&`, true
    /// for `||`.
    fn logical(&mut self, left: &'a IdedExpr, right: &'a IdedExpr, decides: bool) -> EvalResult {
        let left = self.boolean(left);
        match left {
            Ok(flag) if flag == decides => return Ok(Cel::Bool(flag)),
            Err(EvalAbort::BudgetExceeded) => return Err(EvalAbort::BudgetExceeded),
            _ => {}
        }
        match (left, self.boolean(right)) {
            (_, Ok(flag)) if flag == decides => Ok(Cel::Bool(flag)),
            (_, Err(EvalAbort::BudgetExceeded)) => Err(EvalAbort::BudgetExceeded),
            (Err(abort), _) | (Ok(_), Err(abort)) => Err(abort),
            (Ok(_), Ok(flag)) => Ok(Cel::Bool(flag)),
        }
    }

    fn call(&mut self, call: &'a CallExpr) -> EvalResult {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => {
                if self.boolean(condition)? {
                    self.value(yes)
                } else {
                    self.value(no)
                }
            }
            (operators::LOGICAL_AND, [left, right]) => self.logical(left, right, false),
            (operators::LOGICAL_OR, [left, right]) => self.logical(left, right, true),
            (operators::NOT_STRICTLY_FALSE, [operand]) => {
                self.meter.charge(UNIT)?;
                match self.value(operand) {
                    Err(EvalAbort::BudgetExceeded) => Err(EvalAbort::BudgetExceeded),
                    result => Ok(Cel::Bool(result != Ok(Cel::Bool(false)))),
                }
            }
            (function, [operand]) if keywords::operator_symbol(function).is_some() => {
                let operand = self.value(operand)?;
                ops::unary(&mut self.meter, function, &operand)
                    .unwrap_or(Err(ExecutionError::NoSuchOverload.into()))
            }
            (function, [left, right]) if is_binary(function) => {
                let left = self.take_value(left)?;
                let right = self.value(right)?;
                ops::binary(&mut self.meter, &mut self.lists, function, left, right)
                    .unwrap_or(Err(ExecutionError::NoSuchOverload.into()))
            }
            _ => self.function(call),
        }
    }

    fn function(&mut self, call: &'a CallExpr) -> EvalResult {
        let mut args = Vec::with_capacity(call.args.len() + 1);
        let mut namespace = None;
        match call.target.as_deref() {
            // The first segment of a function name, `sets` in `sets.contains`, looks like a variable.
            Some(IdedExpr { expr: Expr::Ident(name), .. })
                if keywords::NAMESPACES.contains(&name.as_str())
                    && !self.names.iter().any(|(known, _)| known == name) =>
            {
                namespace = Some(name.as_str());
            }
            Some(target) => args.push(self.value(target)?),
            None => {}
        }
        for arg in &call.args {
            args.push(self.value(arg)?);
        }
        let is_method = call.target.is_some() && namespace.is_none();
        let call = functions::Call { namespace, name: &call.func_name, is_method, args };
        call.run(self.library, &mut self.meter, self.patterns)
    }
}

/// Returns the contents of an optional value, `None` if it is empty, and any other value unchanged.
fn present(value: Cel) -> Option<Cel> {
    match ops::optional(&value) {
        Some(inner) => inner.value().cloned(),
        None => Some(value),
    }
}

fn is_binary(function: &str) -> bool {
    keywords::operator_symbol(function).is_some()
        || matches!(function, operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT)
}
